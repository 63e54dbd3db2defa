"""What a training step is made of: layers, experts, attention, weight gradients, and the recipe of each.

Builds modules and tells how they are called; times nothing.
"""
