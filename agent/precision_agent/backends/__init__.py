"""What takes samples on one device: torch, Transformer Engine, or a replay of published figures.

The only room that imports torch or Transformer Engine. Runs, sampling and results are above it and not imported here.
"""
