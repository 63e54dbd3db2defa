"""The narrow door to the Kubernetes API: raw paths in, JSON dicts out, every failure an `ApiError`.

Here live the connection (kubeconfig or service account), paging, timeouts and the error's shape. No resource is
interpreted here, nothing is cached, nothing is retried: who calls knows whether a retry does harm. No typed API class
is imported: one costs 1.6 s and 80 MB (measured).
"""

from precision_operator.cluster.client import USER_AGENT, Cluster
from precision_operator.cluster.connection import kopf_connection
from precision_operator.cluster.errors import ApiError, ConnectionProblem

__all__ = ["USER_AGENT", "ApiError", "Cluster", "ConnectionProblem", "kopf_connection"]
