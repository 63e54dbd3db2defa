"""What stands for HiGHS in its process, light to import: each finds a solution and never says a last word."""

import os
import signal
import time
from multiprocessing.connection import Connection

import numpy as np

from precision_operator.planner.solving.highs_process import Solved, next_model

FOUND, PROVED = 7.0, 3.0
"""The value of the only column, and the bound."""
FOR_EVER = 3600.0
"""Seconds."""


def finds_and_hangs(pipe: Connection, parent: Connection) -> None:
    """Never looks at its clock."""
    _find(pipe, parent)
    time.sleep(FOR_EVER)


def finds_and_dies(pipe: Connection, parent: Connection) -> None:
    """Is killed, as for its memory."""
    _find(pipe, parent)
    os.kill(os.getpid(), signal.SIGKILL)


def _find(pipe: Connection, parent: Connection) -> None:
    parent.close()
    next_model(pipe)
    pipe.send(Solved("better", np.full(1, FOUND), PROVED))
