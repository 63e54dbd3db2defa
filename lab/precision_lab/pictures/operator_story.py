"""What an operator would tell of itself while it takes a fleet through one campaign. Every figure here is made up.

The lab's fleets of sweeps have no operator, so the dashboard of the operator has nothing to draw; this stands in for
it, under the real operator's names. Pure: the same moment gives the same text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

MINUTE, HOUR = 60.0, 3600.0
POOLS: Mapping[str, float] = {"NVIDIA-GB200": 0.5, "NVIDIA-GB300": 0.25, "NVIDIA-H100-80GB-HBM3": 0.25}
DISRUPTED = 0.03
"""Share of the runs that training pods take the node from."""
BUCKETS = (30, 60, 120, 300, 450, 600, 900, 1800, 2700, 5400)
RUN_SHARES = (0.0, 0.0, 0.0, 0.15, 0.7, 0.96, 1.0, 1.0, 1.0, 1.0)
"""Of the runs that took at most as long as the bucket says."""
PASSES_EACH_MINUTE = 6.0
PASS_SECONDS = 0.21
KINDS = ("nodes", "profiles", "reports", "jobs", "pods")


@dataclass(frozen=True)
class Campaign:
    """One campaign over `nodes` nodes, from `begin` on, for `hours`; the operator runs since an hour before."""

    nodes: int
    begin: float
    hours: float = 6.0

    def text(self, at: float) -> bytes:
        return "".join(f"{line}\n" for line in self._lines(at)).encode()

    def _lines(self, at: float) -> Iterator[str]:
        done = min(1.0, max(0.0, (at - self.begin) / (self.hours * HOUR)))
        yield from self._runs(done)
        yield from self._queue(done)
        yield from self._passes((at - self.begin + HOUR) / MINUTE, done)
        yield "precision_operator_leader 1"
        yield 'precision_operator_stopped{mode="Hold"} 0'
        yield "precision_operator_clock_ahead_seconds 0"
        yield "precision_operator_profiles 1"
        for place, kind in enumerate(KINDS):
            age = 4 + 2 * place + (at // HOUR + place) % 3
            yield f'precision_operator_watch_age_seconds{{kind="{kind}"}} {age:.0f}'
            yield f'precision_operator_watched{{kind="{kind}"}} 1'

    def _runs(self, done: float) -> Iterator[str]:
        for pool, share in POOLS.items():
            good = self.nodes * share * done
            yield _runs(pool, "succeeded", "Measured", good)
            yield _runs(pool, "disrupted", "Disrupted", good * DISRUPTED)
            metric = "precision_agent_run_duration_seconds"
            for limit, part in zip(BUCKETS, RUN_SHARES, strict=True):
                yield f'{metric}_bucket{{pool="{pool}",le="{limit}.0"}} {good * part:.2f}'
            yield f'{metric}_bucket{{pool="{pool}",le="+Inf"}} {good:.2f}'
            yield f'{metric}_sum{{pool="{pool}"}} {good * 412:.2f}'
            yield f'{metric}_count{{pool="{pool}"}} {good:.2f}'

    def _queue(self, done: float) -> Iterator[str]:
        running = min(4.0, self.nodes * (1 - done)) if 0 < done < 1 else 0.0
        states = {
            "succeeded": round(self.nodes * done),
            "running": round(running),
            "queued": max(0, round(self.nodes * (1 - done) - running)) if done > 0 else 0,
        }
        for state in ("skipped", "waiting", "queued", "running", "succeeded", "failed"):
            yield f'precision_operator_queue_nodes{{state="{state}"}} {states.get(state, 0)}'

    def _passes(self, minutes: float, done: float) -> Iterator[str]:
        passes = PASSES_EACH_MINUTE * minutes
        yield f"precision_operator_reconcile_seconds_count {passes:.2f}"
        yield f"precision_operator_reconcile_seconds_sum {passes * PASS_SECONDS:.3f}"
        yield f'precision_operator_reconcile_seconds_bucket{{le="+Inf"}} {passes:.2f}'
        yield f"precision_operator_reconcile_errors_total {passes * 0.002:.3f}"
        for action, count in {"Start": 1 + DISRUPTED, "Collect": 1.0, "Retry": DISRUPTED}.items():
            yield f'precision_operator_actions_total{{action="{action}"}} {self.nodes * done * count:.2f}'
        requests = {("GET", "200"): 5.0, ("PATCH", "200"): 1.2, ("POST", "201"): 0.6, ("PATCH", "409"): 0.02}
        for (verb, code), count in requests.items():
            yield f'precision_operator_api_requests_total{{verb="{verb}",code="{code}"}} {minutes * count:.2f}'


def _runs(pool: str, result: str, reason: str, count: float) -> str:
    return f'precision_agent_runs_total{{pool="{pool}",result="{result}",reason="{reason}"}} {count:.2f}'
