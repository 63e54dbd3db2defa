"""What a result's figures are: the one rule behind status, metrics, plans, pages and comparisons."""

from precision_api.exchange.message import Summary
from precision_api.exchange.result import MeasurementResult
from precision_api.kinds.report import Origin, ReportRun


def provenance_of(source: ReportRun | Summary | MeasurementResult) -> Origin:
    """measured, replayed, simulated, or a trial on a CPU; one field that nobody measured makes all of it simulated."""
    if source.simulated or source.provenance == "simulated":
        return "simulated"
    if source.provenance == "replayed":
        return "replayed"
    return "trial" if source.provenance == "trial" or source.backend == "torch-cpu" else "measured"
