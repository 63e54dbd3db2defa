"""How long a run of five recipes of an 8B model takes, phase by phase, and how much of it is timed.

    python -m benchmarks.plan [--gpus 8]

The same as `precision-agent run --plan` prints. Goals: quick at most 380 s with 35 % of it timed, standard at most
1,200 s with 60 %.
"""

import argparse

from precision_agent.method.duration import as_text, phases, timed_share, total_seconds
from precision_api.exchange.request import TIMINGS, MeasurementRequest, RequestNode
from precision_api.facts.recipes import Recipe
from precision_api.models.workload import Workload

FIVE: tuple[Recipe, ...] = ("bf16", "fp8_current", "fp8_block", "mxfp8", "nvfp4")
GOALS = {"quick": (360, 0.35), "standard": (1200, 0.60)}
"""Most seconds, least share that is timed."""


def five_recipes(timing: str, gpus: int) -> MeasurementRequest:
    """The request that the goals are about."""
    return MeasurementRequest(
        namespace="benchmarks",
        profile="plan",
        run="plan",
        attempt=1,
        node=RequestNode(name="node", uid="node", product="GB200", gpus=gpus),
        workload=Workload(preset="llama3-8b"),
        recipes=FIVE,
        timing=TIMINGS[timing],
        deadline_seconds=3600,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=1)
    gpus: int = parser.parse_args().gpus
    for timing, (most, least) in GOALS.items():
        run_phases = phases(five_recipes(timing, gpus))
        kept = total_seconds(run_phases) <= most and timed_share(run_phases) >= least
        print(f"{timing}, {gpus} GPUs: {'kept' if kept else 'NOT KEPT'} (at most {most} s, at least {least:.0%} timed)")
        print(as_text(run_phases), end="\n\n")


if __name__ == "__main__":
    main()
