"""One run from request to result, and the command line: opens the backend, shows progress, publishes.

The top room: it imports the others, none of them imports it. Never: torch or Transformer Engine, Kubernetes.
"""
