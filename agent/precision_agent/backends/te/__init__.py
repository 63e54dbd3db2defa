"""Transformer Engine 2.8 to 2.20 on one GPU: its modules, in the way a training step calls them.

`api` holds all that differs between versions, `recipes` what each recipe is, `engine` the device's clock, graphs and
profiler; the tiers take samples. What is decided or computed is a pure function with a test on the CPU, and every call
of Transformer Engine is checked there against the signatures of six of its tags (te_signatures.json).
"""
