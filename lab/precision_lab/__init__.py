"""The lab: a whole Kubernetes cluster with a simulated GPU fleet, on one Linux machine, without root.

Here live the build of the cluster's binaries, the processes and their keeper, the control plane, the fleet's nodes, the
stand-in for the kubelets that runs the real agent program for each simulated node, and the demo. Used by the demo, the
tests and the benchmarks; never in an image, and nothing of the product imports it.
"""
