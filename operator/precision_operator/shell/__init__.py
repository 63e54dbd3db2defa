"""The shell does what the core decides: it gathers one `Observed`, asks for a plan, acts, and gathers again.

All I/O of the operator is here. Nothing is decided here, and nothing is remembered that can't be read back from the
cluster, but for our own writes until the watch shows them.
"""
