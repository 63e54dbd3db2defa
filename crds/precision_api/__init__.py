"""The contract: what users write, what the agent reads, what comes back, and the arithmetic that all sides share.

Here live the pydantic models of every custom resource, of the measurement request and of the result, names and
reasons, workload -> GEMM shapes, parameters and FLOPs, and the statistics. Never: I/O, Kubernetes clients, torch.
"""
