"""May this node be measured, and is it due: labels, taints, GPUs, triggers, schedule, the run that is asked for.

Looks at one profile and one node; knows nothing of agents that run, nor of limits.
"""
