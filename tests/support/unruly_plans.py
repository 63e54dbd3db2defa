"""What stands for the planner in a plan's process, light to import: hangs, takes all memory or solves as it is told."""

import time

from precision_operator.planner.answer.work import DATA_BYTES, MEMORY_BYTES, Work, solved

FOR_EVER = 3600.0
"""Seconds."""


def acts_by_name(work: Work) -> str:
    """Hangs, takes all memory or solves, as the name of the plan's first job says."""
    if "hangs" in work.spec:
        time.sleep(FOR_EVER)
    if "hungry" in work.spec:
        return str(len(bytearray(2 * MEMORY_BYTES)))
    return solved(work)


def takes_memory(work: Work) -> str:
    """Twice or a quarter of what a process may write to in a limited container."""
    return str(len(bytearray(2 * DATA_BYTES if work.spec == "hungry" else DATA_BYTES // 4)))
