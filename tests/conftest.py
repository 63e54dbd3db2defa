"""What all tests share: the fixtures of a real control plane, and the option that makes skipping a failure."""

import gc
import os
import signal
import sys

from hypothesis import settings

# Container images forbid bytecode. Here, where hundreds of processes import the same, each would compile torch anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# A worker of pytest-xdist has one of 80: what is printed is folded where a test asks for it.
os.environ.pop("COLUMNS", None)
# Nothing that is imported goes: until all is collected there is no garbage worth looking for.
gc.disable()
# Two workers on two cores, each with a thread a core: threads that wait for each other take thirty times as long over
# small matrices. Set before anything imports torch.
os.environ["OMP_NUM_THREADS"] = "1"
# Started in the background of a script, all children would ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# How long an example takes is the machine's affair. The same examples in every run: new ones are for `make fuzz`.
settings.register_profile("here", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("fuzz", deadline=None, max_examples=10_000)
settings.load_profile("here")

pytest_plugins = ["pytester", "tests.support.cluster", "tests.support.files", "tests.support.only_skip"]


def pytest_collection_finish() -> None:
    """All that was imported stays: the garbage collector need not go through its million objects at every turn."""
    gc.collect()
    gc.freeze()
    gc.enable()
