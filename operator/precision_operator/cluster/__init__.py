"""The narrow door to the Kubernetes API: raw paths in, JSON dicts out, every failure an `ApiError`.

Here live the connection (kubeconfig or service account), paging, timeouts, the error's shape, watches that begin again,
and the store of what lists and watches have shown. No resource is interpreted here. The client retries nothing: who
calls knows whether a retry does harm. No typed API class is imported: one costs 1.6 s and 80 MB (measured).
"""

import os
from pathlib import Path

try:
    Path.home()
except RuntimeError:
    # An arbitrary UID without a passwd entry has no home, and kubernetes.aio asks for it while it is imported.
    # "/" is what container runtimes set for such a user.
    os.environ["HOME"] = "/"

from precision_operator.cluster.client import USER_AGENT, Cluster, get_or_none
from precision_operator.cluster.errors import ApiError, ConnectionProblem

__all__ = ["USER_AGENT", "ApiError", "Cluster", "ConnectionProblem", "get_or_none"]
