"""What users see of a rehearsed result, made of a simulated replay: it needs no rehearsal."""

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from precision_agent.run.open import Wanted
from precision_agent.run.publish import verdict_text
from precision_agent.run.run import Surroundings, run_wanted
from precision_api.exchange.result import MeasurementResult, Verdict
from precision_operator.cluster import paths
from precision_operator.monitoring.dashboards.node import VERDICTS
from tests.cli.api import MINE, Api, served
from tests.rehearsal.artefacts import NAMESPACE, PROFILE, main, marked, profile_of
from tests.support.result_objects import request_text

WORKLOAD = {"preset": "llama3-8b"}
MADE = ("h100.report.yaml", "h100.report.html", "metrics.txt", "fleet.json", "plan.yaml", "plan.txt", "plan.html")


@pytest.fixture(scope="module")
def replayed() -> MeasurementResult:
    text = request_text(workload=WORKLOAD, product="H100", gpus=8, recipes=("bf16", "fp8_current"))
    found = run_wanted(text, Wanted("replay"), Surroundings()).result
    assert found is not None
    return found


def run(folder: Path, result: MeasurementResult, workload: object = WORKLOAD) -> int:
    saved, asked = folder / "h100.json", folder / "workload.yaml"
    saved.write_text(result.model_dump_json(by_alias=True, exclude_none=True))
    asked.write_text(yaml.safe_dump(workload))
    return main([str(saved), "--workload", str(asked), "--out", str(folder)])


def test_report_metrics_page_and_plan_are_made_and_say_simulated(
    tmp_path: Path, replayed: MeasurementResult, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replayed.provenance == "simulated"
    assert run(tmp_path, replayed) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"h100.json", "workload.yaml", *MADE}
    assert capsys.readouterr().out.count("says simulated") == 5


def test_no_reader_takes_a_replays_assumed_precision_for_a_verdict(tmp_path: Path, replayed: MeasurementResult) -> None:
    run(tmp_path, replayed)
    report = yaml.safe_load((tmp_path / "h100.report.yaml").read_text())
    api = Api(tmp_path)
    api.hold(paths.profiles(NAMESPACE), profile_of(WORKLOAD))
    api.hold(paths.reports(NAMESPACE), report | {"metadata": report["metadata"] | {"labels": MINE}})
    shown = {name: (tmp_path / name).read_text() for name in (*MADE, "h100.json")}
    shown["metrics.txt"] = re.sub("(?m)^#.*", "", shown["metrics.txt"])
    with served(api):
        shown["status"] = api.run("status", PROFILE, "-n", NAMESPACE).stdout
    shown["run --local"] = verdict_text(replayed)
    assert {name for name, text in shown.items() if re.search(r"\bverified\b", text)} == set()
    silent = {name for name, text in shown.items() if not re.search(r"\bassumed\b", text)}
    assert silent <= {"plan.yaml"}, "all readers show the verdict"
    marks = {mark.pattern: mark.colour for mark in VERDICTS}
    assert marks.keys() == set(get_args(Verdict))
    assert marks["assumed"] != marks["verified"]


def test_a_result_that_is_not_simulated_is_a_fault_of_each_artefact(
    tmp_path: Path, replayed: MeasurementResult, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = [
        row.model_copy(update={"verification": row.verification.model_copy(update={"verdict": "unknown"})})
        for row in replayed.recipes
    ]
    measured = {"provenance": "measured", "simulated": (), "recipes": tuple(seen)}
    assert run(tmp_path, replayed.model_copy(update=measured)) == 1
    told = capsys.readouterr().out
    assert "provenance is measured" in told
    assert "metrics.txt" in told
    assert "not marked simulated: h100" in told
    assert "says simulated" not in told


def test_a_result_of_another_workload_is_refused(tmp_path: Path, replayed: MeasurementResult) -> None:
    with pytest.raises(ValueError, match="a result of llama3-8b, not of qwen3-8b"):
        run(tmp_path, replayed, {"preset": "qwen3-8b"})


def test_help_texts_that_name_simulated_mark_no_node() -> None:
    help_text = (
        '# HELP precision_node_info data is measured or simulated\nprecision_node_info{data="measured",node="a"} 1'
    )
    assert not marked(help_text, "a")
