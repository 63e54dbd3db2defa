"""Real nodes: containerd, runc, kubelet and kube-proxy, in namespaces that vanish with the lab. Needs root.

Here: what makes a process a node. Not here: what runs on the nodes, and anything about simulated ones.
"""
