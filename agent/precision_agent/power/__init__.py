"""GPU sensors to joules, or to the reason why there are none: NVML, the sampling process, energy, throttling.

Never: torch, Transformer Engine, and what is measured. It says how much power flowed when, not for which recipe.
"""
