"""The planner answers: which pool, which precision, how many GPUs, how long, how much.

Pure like the core: from one frozen spec and one frozen fleet to one frozen answer; no I/O, no clock (`now` is an
argument), no randomness. numpy does the arithmetic, ortools solves the programs. It never imports what talks to
Kubernetes: the plugin and the operator call it, the operator in a process of its own, since a solve takes seconds.

No figure is made up here: a rate is measured, declared by the user with a source, or predicted and flagged.
"""
