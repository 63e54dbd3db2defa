"""The fake kubelet of all simulated nodes: runs the real agent program for each agent pod, and serves its logs.

Never: pods of real nodes, and pods that are not agents.
"""
