"""The simulated fleet: hardware, traits, Node objects, and their way into a cluster and out of it.

Never: what runs on the nodes.
"""
