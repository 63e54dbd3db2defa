"""May one more agent start now: limits of profile and fleet, who blocks, and whose turn it is.

The only place where agents are counted.
"""
