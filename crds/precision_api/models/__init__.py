"""A model by its dimensions, and what follows from them: GEMM shapes, parameters, FLOPs and memory.

Reads presets and Hugging Face configs. Knows nothing of Kubernetes, of requests or of results.
"""
