"""What GPUs measured, kept in benchmarks/results: the product still reads it, and shows it as measured."""

from pathlib import Path

import pytest

from precision_agent.precision.kernels import classify
from precision_agent.precision.verification import EXPECTED_CLASS
from precision_api.exchange.result import MeasurementResult
from tests.rehearsal.artefacts import metrics_of, profile_of, report_of

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
QUICK = sorted(RESULTS.glob("*/*/quick-*.json"))


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*/[pq]*.json")), ids=lambda path: path.name)
def test_a_result_is_measured_and_its_kernels_prove_what_they_proved(path: Path) -> None:
    result = MeasurementResult.model_validate_json(path.read_bytes())
    assert (result.provenance, result.simulated) == ("measured", ())
    for row in result.recipes:
        assert row.verification.verdict == "verified"
        classes = {kernel.name: classify(kernel.name).kernel_class for kernel in row.verification.kernels}
        assert "unknown" not in classes.values(), classes
        assert EXPECTED_CLASS[row.recipe] in classes.values()


def test_a_report_and_the_metrics_of_it_say_measured() -> None:
    assert QUICK
    for path in QUICK:
        result = MeasurementResult.model_validate_json(path.read_bytes())
        report = report_of(result, "node-1")
        assert len(str(report)) < 6 << 10
        metrics = metrics_of(profile_of({"preset": result.workload_name}), [report])
        assert 'data="measured"' in metrics
        assert "simulated" not in metrics.split("precision_node_info{")[1].splitlines()[0]
