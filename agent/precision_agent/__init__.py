"""The agent: measures one node and writes one result.

`protocol` and `cases` are what a run and its backend agree on. The rooms above them, from the top: `run` (from request
to result, the command line), `results` (samples to figures and words), `sampling` (all GPUs in step), `backends` (the
only place that imports torch or Transformer Engine), and side by side `method`, `precision` and `power`. Never:
Kubernetes (the agent has no token), the operator's code, pictures.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("precision-profiler")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0.0.0+source"
