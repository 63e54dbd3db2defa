"""The lab: a whole Kubernetes cluster with a simulated GPU fleet on one Linux machine, without root.

`lab` starts one and `cli` is its command line; `names` holds the lab's annotations. Rooms from the ground up:
`processes`, `builds`, `cluster`, then side by side `fleet`, `kubelet` and `monitoring`, and above `lab` the rooms
`release`, `nodes`, `pictures` and `demo`. Used by the demo, the tests and the benchmarks; never in an image, and
nothing of the product imports it.
"""
