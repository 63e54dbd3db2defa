"""Processes of one cluster and their supervisor, which ends them all with itself; ports and locks.

The ground floor: it knows programs and folders. Never: Kubernetes.
"""
