"""What is seen: cluster objects parsed once into frozen values, the time of a decision, the settings.

No decision is made here, and nothing of `rollout`, `results` or `status` is imported: every other room reads these
values.
"""
