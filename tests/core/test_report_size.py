"""A report stays small whatever it holds: lists of big per-node objects are what hurts at scale."""

import json
import tracemalloc
from dataclasses import replace

import pytest

from precision_api.exchange.message import RecipeSummary
from precision_api.exchange.result import DeviceMemory, Interval
from precision_api.facts.recipes import RECIPE_NAMES
from precision_api.kinds.profile import Retention, Retry
from precision_api.kinds.report import ReportAcceptance, ReportStatus
from precision_operator.core.attempts.actions import Keeping
from precision_operator.core.observe.kept_report import kept_report, whole
from precision_operator.core.observe.observed import JobView, Reports
from precision_operator.core.plan import plan
from precision_operator.core.reasons import said
from precision_operator.core.results import ingest
from precision_operator.core.results.acceptance import MOST_BYTES as MOST_TEXT
from precision_operator.core.results.endings import NoResult
from precision_operator.core.results.reading import read
from precision_operator.core.status.telling import tell
from tests.support.simulated_cluster import summary
from tests.support.world import MINUTE, NOW, job, nodes, observed, profile, report

MOST_BYTES = 892 * len(RECIPE_NAMES)
"""With all recipes, the history of the default length and the longest failure. The goal was 4,096: the names of
the figures of seven recipes alone take half of that, so less would need another form of status.results."""
BYTES_A_RUN = 83 * len(RECIPE_NAMES)
"""What each run of a longer history adds: all recipes' rates and tokens per joule, so that runs can be compared."""
DEFAULT_HISTORY = 3
BASIS = {"spec": "84ff82e91d", "agent": "9316d69b3c", "driver": "580.159.04", "hardware": "GB200/4/189471"}
BASIS |= {"schedule": "2026-11-21T02:00:00Z", "rerun": "3f9a1c2b4d", "rerunNode": "8d7c6b5a41"}
KEEPING = Keeping(Retry(limit=0), Retention(history=10))


def interval(value: float) -> Interval:
    return Interval(value=value, lower=value * 0.988, upper=value * 1.012, n=8)


def row(recipe: str) -> RecipeSummary:
    return RecipeSummary.model_validate({
        "recipe": recipe, "availability": "ok", "verdict": "verified",
        "tokens_per_second": interval(1_234_567.891).model_dump(), "speedup": interval(1.3723).model_dump(),
        "difference": "faster", "gpu_spread": 0.98765, "quantization_tax": 0.12345, "tokens_per_joule_net": 31.2345,
        "gemm_speedup": {"autocast": 1.4231, "prequantized": 1.7312}, "watts": 4321.98, "tokens_per_joule": 28.5648,
        "power_scope": "module", "model_memory_bytes": 141_733_920_768, "allocated_peak_bytes": 35_379_785_216,
    })  # fmt: skip


FIGURES = {
    "recipes": tuple(map(row, RECIPE_NAMES)),
    "noise_floor": 0.00534,
    "gemm_error": 0.00456,
    "device_memory": DeviceMemory(used_bytes=55_879_467_008, total_bytes=197_568_495_616),
}


def run(number: int) -> JobView:
    return job("n" * 40, run=f"{number:010x}", basis=BASIS, created=NOW + number * MINUTE, workload="llama3.1-405b")


def measured_and_failed(runs: int) -> ReportStatus:
    """A report after `runs` runs with all seven recipes, the last of which failed."""
    status = ReportStatus()
    for number in range(runs - 1):
        figures = summary(run(number)).model_copy(update=FIGURES)
        finding = ingest.finding(figures, None, "the connection to the kubelet was refused")
        status = ingest.read_status(finding, run(number), report(status=status), "NVIDIA-GB200", NOW, KEEPING)
    problem = NoResult(said("ImagePullFailed", image="registry.example.com/agent:1", text="x" * 300))
    return ingest.failed_status(problem, run(runs), report(status=status), NOW, KEEPING)


def size(status: ReportStatus) -> int:
    return len(json.dumps(ingest.report_json(status), separators=(",", ":")).encode())


def test_a_report_with_a_verdict_of_eight_gpus_and_four_recipes_stays_below_six_kib() -> None:
    """The longest: a Fail by three runs against the second of two references, in which three GPUs fail."""
    uuid, recipes = "GPU-01234567-89ab-cdef-0123-456789abcdef", ("bf16", "fp8_current", "mxfp8", "nvfp4")
    lines = [f"{recipe} {check} -12.3 10.6 7 Fail" for check in ("reference", "node", "change") for recipe in recipes]
    runs = {"run": "0123456789 2026-11-26T10:00:00Z", "number": 3}
    means = " ".join(f"{recipe}=1.1439:{'obq' * 8}" for recipe in recipes)
    runs |= {"averages": [f"01234567@29928491 {means * 3}"[:MOST_TEXT]]}
    verdict = {
        "verdict": "Fail", "reason": "TooSlow", "decidedAt": "2026-11-26T10:00:00Z", "basis": "0" * 10,
        "message": "GPU 7 is 12.3 % slower than its node's others with fp8_current; 10.6 % fails", "runs": runs,
        "reference": {"name": "gb200-november", "sha256": "0" * 64}, "checks": [*lines, *lines[:3]],
        "subject": {"bootID": uuid, "driver": "580.159.04", "gpus": [uuid] * 8, "pci": ["0000:19:00.0"] * 8},
    }  # fmt: skip
    view, status = report(), ReportStatus()
    for number in range(3):
        finding = ingest.finding(
            summary(run(number)).model_copy(update=FIGURES | {"recipes": tuple(map(row, recipes))}), None
        )
        status = ingest.read_status(finding, run(number), replace(view, status=status), "NVIDIA-GB200", NOW)
    assert (len(status.results), len(status.history), status.state) == (4, 3, "Measured")
    assert size(status.model_copy(update={"acceptance": ReportAcceptance.model_validate(verdict)})) < 6 * 1024


@pytest.mark.parametrize("runs", [2, 4, 11])
def test_a_report_with_a_full_history_and_all_recipes_fits(runs: int) -> None:
    status = measured_and_failed(runs)
    assert (len(status.results), len(status.history)) == (len(RECIPE_NAMES), min(runs, 10))
    assert size(status) <= MOST_BYTES + BYTES_A_RUN * max(0, len(status.history) - DEFAULT_HISTORY), size(status)


def test_what_is_kept_of_a_report_of_five_recipes_takes_two_kib_reads_as_it_does_and_makes_no_next_one() -> None:
    five = measured_and_failed(2).results[:5]
    written = ingest.report_json(measured_and_failed(2).model_copy(update={"results": five}))
    texts = (json.dumps(written).replace("T09:0", f"T{hour}:0") for hour in range(10, 70))
    statuses = [ReportStatus.model_validate_json(text) for text in texts]
    _ = kept_report(statuses[0]), tracemalloc.start()
    kept = [kept_report(status) for status in statuses]
    assert tracemalloc.get_traced_memory()[0] / len(kept) < 2048
    tracemalloc.stop()
    left = ingest.report_json(whole(kept[0]))
    first = ingest.report_json(statuses[0])
    assert left == {name: first[name] for name in left}
    assert {"recommendation", "history", "best"} <= written.keys() - left.keys()
    assert read("n", "p", kept[0]).rows == read("n", "p", statuses[0]).rows
    with pytest.raises(AttributeError, match="read the report"):
        ingest.failed_status(NoResult(said("Failed")), run(3), report(status=kept[0]), NOW, KEEPING)


def test_what_plans_and_statuses_keep_of_a_node_and_profile_takes_two_kib() -> None:
    """Of twenty profiles over a hundred nodes; the reports themselves come on top."""
    owners, names = [f"p{number}" for number in range(20)], [f"n{number:02}" for number in range(100)]
    figures = summary(run(1)).model_copy(update=FIGURES | {"recipes": tuple(map(row, RECIPE_NAMES[:5]))})
    status = ingest.read_status(ingest.finding(figures, None), job(), report(), "NVIDIA-GB200", NOW)
    reports = [report(name, owner, kept_report(status)) for owner in owners for name in names]
    seen = observed([*map(profile, owners)], nodes(*names), reports=Reports(reports))
    tracemalloc.start()
    made = plan(seen, book=plan(seen).book)
    told = tell(made, seen)
    assert tracemalloc.get_traced_memory()[0] / len(reports) < 2048
    tracemalloc.stop()
    plans = *made.profiles, *(item for item, _ in told.rows)
    assert [item.node_states.kinds["succeeded"] for item in plans] == [len(names)] * 2 * len(owners)


def test_the_history_keeps_as_many_runs_as_the_profile_says_newest_first() -> None:
    status = measured_and_failed(11)
    assert [past.run for past in status.history] == [f"{n:010x}" for n in (11, 9, 8, 7, 6, 5, 4, 3, 2, 1)]
