"""Samples and recordings to one result, and the result in words.

Never: torch or Transformer Engine, files and command lines; what is not known is absent with a reason, never 0.
"""
