"""Schedules of what befalls a fleet whose verdicts reach its Nodes, and a reader of all that was written there.

`python -m benchmarks.node_conditions --seeds 500 [--first N] [--without GUARD]` prints what is wrong. From the bottom:
`record` is what a reader sees, `reader` judges it, `server` and `fleet` are simulated, `faults` befall them, and
`schedules` puts faults in a row.
"""
