"""Samples the fake NVML in its own time: prints the sampler's rows of `seconds` as JSON, in a blink.

The clock moves only when the sampler waits, and takes the library's time with it; so what was sampled when is exact.
With `late`, every tenth wait takes that many seconds too long, as on a machine that is short of processors.
"""

import ctypes
import json
import sys
from dataclasses import asdict

import pynvml

from precision_agent.power.sensor_sampling import sample


def main(seconds: float, uuids: list[str], late: float = 0.0) -> None:
    now, waits = 0.0, 0

    def wait(until: float) -> bool:
        nonlocal now, waits
        waits += 1
        now = max(now, until) + (late if waits % 10 == 0 else 0.0)
        pynvml.nvmlLib.fake_nvml_set_seconds(ctypes.c_double(now))
        return now <= seconds

    pynvml.nvmlInit()
    wait(0.0)
    print(json.dumps([asdict(row) for row in sample(pynvml, uuids, lambda: now, wait)]))


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2:])
