"""`python -m tests.rehearsal.artefacts RESULT... --workload FILE --out FOLDER`: what users see of rehearsed results.

By the product's own ways, without a cluster: each result travels as the agent sends it and becomes a report as the
operator writes it; the exporter renders its metrics, the plugin its page, and a plan is made of the fleet that these
reports are. Fails where one of them is missing or does not say that its figures are simulated.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.wire import encode, read_message
from precision_api.facts.names import API_VERSION, PLAN_KIND, PROFILE_KIND, PROFILE_PLURAL, REPORT_PLURAL
from precision_api.kinds.profile import ProfileSpec
from precision_api.models.workload import resolve
from precision_operator.cli import app
from precision_operator.cli.commands.fleet import saved
from precision_operator.core.attempts import manifest
from precision_operator.core.observe.clock import format_time, parse_time
from precision_operator.core.observe.observed import JobView, ReportView
from precision_operator.core.results.ingest import finding, read_status, report_json
from precision_operator.exporter.body import build
from precision_operator.exporter.store import Store
from precision_operator.planner.inputs.snapshot import fleet_of, profile_facts, report_facts

NAMESPACE, PROFILE, MARK = "rehearsal", "rehearsal", "simulated"
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Artefact:
    """A file that was made, what is wrong with it, if anything, and the words by which it says simulated."""

    name: str
    content: str
    problem: str = ""
    words: tuple[str, ...] = ("SIMULATED",)


def profile_of(workload: Object) -> Object:
    """The profile that would have asked for these results. ValueError where the workload can't be read."""
    spec = {"target": {}, "workload": workload, "benchmarks": {"preset": "quick"}}
    ProfileSpec.model_validate(spec)
    meta = {"name": PROFILE, "namespace": NAMESPACE, "uid": "profile", "resourceVersion": "1"}
    return {"apiVersion": API_VERSION, "kind": PROFILE_KIND, "metadata": meta, "spec": spec}


def report_of(result: MeasurementResult, node: str) -> Object:
    """The report that the operator writes of a result, which it reads as the agent sends it."""
    published = encode(result)
    found = finding(read_message(published.message), "\n".join(published.lines))
    ended = parse_time(result.finished_at)
    job = JobView(
        name=f"job-{node}", namespace=NAMESPACE, uid=f"job-{node}", profile=PROFILE, profile_uid="profile",
        node_name=node, node_uid=node, run=result.run, attempt=result.attempt, request_hash=result.request_hash,
        created=ended, workload=result.workload_name,
    )  # fmt: skip
    written = manifest.report(NAMESPACE, PROFILE, "profile", node, node)
    view = ReportView(written["metadata"]["name"], NAMESPACE, f"report-{node}", PROFILE, "profile", node, node)
    status = read_status(found, job, view, result.product, ended)
    written["metadata"] |= {"uid": view.uid, "resourceVersion": "1"}
    return written | {"status": report_json(status)}


def metrics_of(profile: Object, reports: Sequence[Object]) -> str:
    """The exporter's text of these objects, in all detail that reports have."""
    store = Store("node")
    store.see(PROFILE_PLURAL, profile)
    for report in reports:
        store.see(REPORT_PLURAL, report)
    return build(store.view()).text.decode()


def plan_of(workload: Object, pools: Sequence[str]) -> Object:
    """A plan that trains some tokens of this workload on the pools, at made-up prices; it allows what is simulated."""
    scaling = [{"gpus": 1, "efficiency": "1"}, {"gpus": 8, "efficiency": "0.9"}]
    own = [{"name": name, "dollarsPerGPUHour": "3", "priceIncludesPower": True, "scaling": scaling} for name in pools]
    job = {"name": "pretrain", "workload": workload, "tokens": "1B", "deadlineDays": "60", "memoryCheck": "Ignore"}
    spec = {
        "fleet": {"allow": [MARK]}, "objective": ["cost"], "goodput": "0.9",
        "pools": own, "jobs": [job],
    }  # fmt: skip
    return {"apiVersion": API_VERSION, "kind": PLAN_KIND, "metadata": {"name": "rehearsal"}, "spec": spec}


def fleet(profile: Object, reports: Sequence[Object], now: datetime) -> Object:
    """What plans are made from, as `kubectl precision fleet -o json` saves it."""
    nodes = {report["spec"]["nodeUID"]: "" for report in reports}
    campaign = profile_facts(profile)
    assert campaign is not None, "the profile was validated"
    return saved(fleet_of(map(report_facts, reports), [campaign], nodes, now, "rehearsed results"))


def said(arguments: Sequence[str]) -> tuple[str, str]:
    """stdout of a command of the plugin, and why there is none."""
    ran = CliRunner().invoke(app, list(arguments))
    return ran.stdout, "" if ran.exit_code == 0 else f"exit {ran.exit_code}: {ran.stderr.strip() or ran.exception}"


def made(results: Sequence[Path], workload: Object, out: Path) -> Iterator[Artefact]:
    """Every artefact, in the order in which one is made of the other; written to `out` where the plugin reads them."""
    profile, now = profile_of(workload), datetime.now(UTC)
    reports = []
    for path in results:
        result = MeasurementResult.model_validate_json(path.read_text(encoding="utf-8"))
        asked = resolve(ProfileSpec.model_validate(profile["spec"]).workload)
        if asked.name != result.workload_name or asked.training_flops_per_token != result.training_flops_per_token:
            raise ValueError(
                f"{path}: a result of {result.workload_name}, not of {asked.name}; give --workload its own"
            )
        reports.append(report_of(result, path.stem))
        kind = "" if result.provenance == MARK else f"provenance is {result.provenance}"
        missing = [row.recipe for row in result.recipes if row.training is None or row.training.failure]
        lacking = f"no training figure of {', '.join(missing)}" if missing else ""
        text = yaml.safe_dump(reports[-1], sort_keys=False)
        yield Artefact(f"{path.stem}.report.yaml", text, kind or lacking, (f"data: {MARK}",))
        yield Artefact(f"{path.stem}.report.html", *said(["report", str(path), "-o", "-"]))
    text = metrics_of(profile, reports)
    unmarked = [path.stem for path in results if not marked(text, path.stem)]
    yield Artefact("metrics.txt", text, f"not marked {MARK}: {', '.join(unmarked)}" if unmarked else "", ())
    pools = sorted({report["status"]["hardware"]["pool"] for report in reports})
    for name, document in (("fleet.json", fleet(profile, reports, now)), ("plan.yaml", plan_of(workload, pools))):
        (out / name).write_text(json.dumps(document), encoding="utf-8")
    asked_for = ["plan", "-f", str(out / "plan.yaml"), "--fleet", str(out / "fleet.json"), "--at", format_time(now)]
    for suffix, form in (("txt", "table"), ("html", "html")):
        yield Artefact(f"plan.{suffix}", *said([*asked_for, "-o", form]))


def checked(found: Artefact) -> str:
    """What is wrong with an artefact; empty where nothing is."""
    if found.problem:
        return found.problem
    missing = [words for words in found.words if words not in found.content]
    return f"does not say {' or '.join(missing)}" if missing else ""


def marked(metrics: str, node: str) -> bool:
    """Whether the node's information says that its figures are simulated: series of figures have no such label."""
    lines = [line for line in metrics.splitlines() if line.startswith("precision_node_info{")]
    return any(f'node="{node}"' in line and f'data="{MARK}"' in line for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """A line for each artefact; 1 where one has a problem."""
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal.artefacts", description=__doc__)
    parser.add_argument("results", nargs="+", type=Path, metavar="RESULT", help="from run --local --output")
    parser.add_argument("--workload", required=True, type=Path, help="YAML: the workload, as in a profile's spec")
    parser.add_argument("--out", required=True, type=Path, help="folder for the artefacts")
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    faults = 0
    for found in made(asked.results, yaml.safe_load(asked.workload.read_text(encoding="utf-8")), asked.out):
        (asked.out / found.name).write_text(found.content, encoding="utf-8")
        problem = checked(found)
        faults += bool(problem)
        print(f"{found.name}: {len(found.content):,} characters, {problem or 'says simulated'}")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
