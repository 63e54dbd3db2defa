"""What takes the samples: raw seconds, watts and bytes. Everything that is made of them is shared and lives elsewhere.

The only place that imports torch or Transformer Engine, and only inside the module of the backend that needs it.
"""
