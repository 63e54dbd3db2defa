"""The agent: measures one node and says what it found in one result.

`cases`, `order` and `assess` are pure; `run` leads from request to result; `backends` is the only place that may import
torch or Transformer Engine; `sensors` read the hardware; `publish` writes the termination message, the log lines and
the file. Never: Kubernetes (the agent has no token), the operator's code, pictures.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("precision-profiler")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0+source"
