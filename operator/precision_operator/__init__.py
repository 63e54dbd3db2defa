"""The operator: watches profiles and nodes, plans, makes Jobs, reads results, and shows them.

`core` decides and is pure, `shell` and `cluster` do the I/O, `exporter` projects reports to Prometheus, `cli` is the
kubectl plugin. Never here: torch, NVML, or anything of the agent, which runs in images of its own.
"""
