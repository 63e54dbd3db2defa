"""A real control plane on loopback: certificates, kubeconfigs, etcd to scheduler, kwok.

Never: what the nodes are like, and anything of the product.
"""
