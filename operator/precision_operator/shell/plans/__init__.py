"""CapacityPlans: when one is solved anew, in a process of its own that can be ended at any moment.

Beside the loop of profiles, never in it.
"""
