"""A rehearsal: the real torch.cuda and the real Transformer Engine on a CUDA runtime without a device.

Shows whether the agent's way through them holds: calls, modules, captures, profiles, memory, errors. Every figure of it
is made up, and says so: by the GPU's name, and by provenance. A developers' tool; nothing of the product imports it.
"""
