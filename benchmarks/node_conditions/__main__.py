"""Runs schedules and prints what is wrong."""

import argparse
import asyncio
import logging
import os
import sys

from benchmarks import node_conditions
from benchmarks.node_conditions.schedules import GUARDS, schedule


def main() -> int:
    parser = argparse.ArgumentParser(description=node_conditions.__doc__)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--without", choices=GUARDS)
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is part of a history
        os.execve(sys.executable, sys.orig_argv, {**os.environ, "PYTHONHASHSEED": "0"})
    if options.without:
        setattr(*GUARDS[options.without])
    logging.disable(logging.CRITICAL)
    failed = 0
    for seed in range(options.first, options.first + options.seeds):
        if errors := asyncio.run(schedule(seed)):
            failed += 1
            print(f"seed {seed}:", *errors[:6], sep="\n  ", flush=True)
            if options.without:
                break
        if seed % 25 == 24:
            print(f"up to seed {seed}: {failed} failed", flush=True)
    print(f"{options.seeds} schedules, {failed} with a wrong write, a stale True or good nodes closed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
