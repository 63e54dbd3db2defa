"""What is timed: GEMMs of one layer, a training step of a short model, loss runs, profiles, checks beside them.

Each tier builds what it times out of the steps and runs it in a session.
"""
