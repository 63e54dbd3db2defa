"""A fleet on the lab's real control plane, measured by one command: `python -m benchmarks.fleet --nodes 100`.

`rig` starts the cluster, `agents` stands in for its kubelets, `bare_client` makes the operator's writes without it,
`figures` reads the audit log, `chart` draws what was saved. `reader` holds the audit log against the limits, and
imports nothing of the product.
"""
