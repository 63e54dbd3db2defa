"""What became of an attempt, and what it is made of: manifests, places, refusals, retries, claims, yields.

Ends with the state of each node of a profile; who starts next is not decided here.
"""
