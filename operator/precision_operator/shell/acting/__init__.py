"""What is done to the cluster: agents started, collected and ended, reports written, objects deleted.

Each act does no harm when it is done twice. Nothing is decided here.
"""
