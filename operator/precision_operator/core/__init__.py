"""Decides, and does nothing: every function here takes frozen values and gives a frozen value back.

No Kubernetes client, no clock (`now` is an argument), no randomness, no environment, no log. What a user is told -
every reason, with its next step - is decided here too, so that a dry run says exactly what a real run would do.
"""
