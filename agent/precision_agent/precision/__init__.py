"""Did the claimed precision run? Kernel names, quantisation errors, the verdict of a recipe.

Pure: names and numbers in, verdicts out. Never: torch or Transformer Engine, and anything about speed or power.
"""
