"""The device under Transformer Engine: stream, clock, memory, CUDA graphs, and what the device is.

Knows no model and no recipe.
"""
