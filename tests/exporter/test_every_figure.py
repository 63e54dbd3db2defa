"""Every figure of a recipe that an agent gives reaches its metric: message, log, report, exporter."""

from collections import defaultdict

from precision_agent.run.run import run_request
from precision_api.exchange.wire import read_message
from precision_api.facts.recipes import RECIPE_NAMES
from precision_api.models.workload import Workload
from precision_operator.core.results import ingest
from precision_operator.exporter.body import build
from tests.support.exposition import samples_in, store_of
from tests.support.report_objects import report_object
from tests.support.result_objects import request_text
from tests.support.world import NOW, job, report

_OF_EVERY_RECIPE = (
    "allocated_peak_bytes gpu_spread_ratio model_memory_bytes power_valid training_net_tokens_per_joule "
    "training_power_watts training_tokens_per_joule training_tokens_per_second verification"
)
OF_EVERY_RECIPE = {f"precision_node_{name}" for name in _OF_EVERY_RECIPE.split()}
_OF_ALL_BUT_THE_BASELINE = (
    "gemm_speedup_ratio quantization_tax_ratio training_speedup_lower_ratio training_speedup_ratio "
    "training_speedup_upper_ratio"
)
OF_ALL_BUT_THE_BASELINE = {f"precision_node_{name}" for name in _OF_ALL_BUT_THE_BASELINE.split()}
NO_TAX = {"fp8_delayed"}
"""It has no prequantized mode, so quantisation can't be told apart."""


def test_every_figure_of_seven_recipes_reaches_its_metric() -> None:
    text = request_text(workload=Workload(preset="llama3-8b"), recipes=RECIPE_NAMES, product="GB200")
    outcome = run_request(text, "replay")
    found = ingest.finding(read_message(outcome.message), "\n".join(outcome.lines))
    status = ingest.read_status(found, job(), report(), "NVIDIA-GB200", NOW)
    shown = defaultdict(set)
    for sample in samples_in(build(store_of(report_object("n1", status=ingest.report_json(status))).view()).text):
        shown[sample.name].add(sample.labels.get("recipe", ""))
    assert {name: shown[name] for name in OF_EVERY_RECIPE} == {name: set(RECIPE_NAMES) for name in OF_EVERY_RECIPE}
    compared = set(RECIPE_NAMES) - {"bf16"}
    for name in OF_ALL_BUT_THE_BASELINE:
        assert compared - NO_TAX <= shown[name] - {"bf16"} <= compared, name
