"""`kubectl precision plan -f plan.yaml`: which pool, which precision, how many GPUs; from a cluster or a file."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from precision_api.facts.names import API_VERSION, GROUP, PLAN_KIND
from precision_api.kinds.capacity_plan import JobPlan, PlanSpec, PlanStatus
from precision_operator.cli.allowed import strictly
from precision_operator.cli.commands.fleet import fleet_of_cluster
from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.options import Namespace, Reach, asks_cluster
from precision_operator.cli.output import FORMS, OutputFormat, as_columns, printed, read_output, wrapped
from precision_operator.cli.saved import objects, read
from precision_operator.cli.terminal import DONE, NO_ANSWER, NOT_KNOWN, WRONG_INPUT, Code, fail, say, sentences
from precision_operator.core.observe.clock import parse_time
from precision_operator.planner.answer.conditions import status_before
from precision_operator.planner.answer.document import status
from precision_operator.planner.answer.page import page
from precision_operator.planner.answer.planning import PlanAnswer, plan
from precision_operator.planner.answer.table import flat, lines, narrow, wide
from precision_operator.planner.answer.what_if import what_ifs
from precision_operator.planner.inputs.fleet import Fleet, joined, read_fleet

ENDS: Mapping[str | None, Code] = {
    "Solved": DONE,
    "Refused": WRONG_INPUT,
    "Infeasible": NO_ANSWER,
    "TimedOut": NOT_KNOWN,
    "NotFound": NOT_KNOWN,
}
"""How the command ends, by the answer's phase."""
_DAYS = ("daysLow", "daysMid", "daysHigh")
HEADER = (*(field.alias or name for name, field in JobPlan.model_fields.items() if name != "days"), *_DAYS)
"""The columns of a job in CSV: its fields."""
FOLDS = ("deadline", "recipe", "time", "pool", "job", "TFLOP/s/GPU")
DROPS = ("power", "$/mtoken", "mwh")
"""Columns that a narrow terminal has not; -o wide has them always."""
PAGE = "html"
"""What -o takes beside the forms of every command."""


def read_plan_output(text: str) -> str:
    """The form that `text` names, for -o. Raises typer.BadParameter."""
    return text if text == PAGE else read_output(text)


@asks_cluster
def plan_jobs(
    file: Annotated[str, typer.Option("--file", "-f", help="File with a CapacityPlan (`-`: stdin).")],
    fleet: Annotated[
        list[str] | None,
        typer.Option(
            help="Fleet saved by `kubectl precision fleet -o json`; for several clusters CLUSTER=FILE, once each. "
            "Default: the cluster."
        ),
    ] = None,
    namespace: Namespace = None,
    output: Annotated[
        str,
        typer.Option("--output", "-o", parser=read_plan_output, metavar=f"{FORMS}|{PAGE}", help="Form of the output."),
    ] = OutputFormat.TABLE,
    at: Annotated[
        str | None, typer.Option(help="Judge ages and deadlines at this time (RFC 3339). Default: now.")
    ] = None,
    *,
    reach: Reach,
) -> None:
    """Answer a CapacityPlan: which pool, which precision, how many GPUs, how long, how much."""
    spec, name, place, before = _asked_for(file)
    now = _moment(at)
    if fleet:
        snapshot = _saved(fleet)
    elif spec.pools and all(pool.nodes and pool.gpus_per_node and pool.job_rates for pool in spec.pools):
        snapshot = Fleet(taken_at=now.isoformat(), source="the plan's own pools")
    else:
        places = [*spec.fleet.namespaces] or ([namespace or place] if namespace or place else None)
        snapshot = ask_cluster(reach, lambda cluster: fleet_of_cluster(cluster, places or [cluster.namespace]))
    answer = plan(spec, snapshot, now, before=before)
    answer_status = status(answer, what_ifs(spec, snapshot, answer, now))
    say(_shown(output, answer_status, answer, name))
    if answer_status.phase != "Solved":
        for problem in answer_status.problems:
            say(f"error: {problem}", err=True)
        raise typer.Exit(ENDS[answer_status.phase].number)


def _asked_for(file: str) -> tuple[PlanSpec, str, str, tuple[JobPlan, ...]]:
    """(spec, name, namespace, jobs of its status) of a file's first CapacityPlan; ends the command without one."""
    try:
        documents = objects(file)
    except ValueError as error:
        fail(str(error))
    raw = next((item for item in documents if item.get("kind") == PLAN_KIND), None)
    if raw is None:
        fail(f"{file}: there is no {PLAN_KIND} in it; see kubectl explain cplan.spec")
    if raw.get("apiVersion") != API_VERSION:
        fail(f"{file}: apiVersion is {raw.get('apiVersion')!r}; this version reads {API_VERSION}")
    meta = raw.get("metadata") or {}
    try:
        spec = strictly(PlanSpec, raw.get("spec") or {})
    except ValueError as error:
        fail(f"{file}: {sentences(error, 'spec', PlanSpec)}")
    return spec, str(meta.get("name", "plan")), str(meta.get("namespace", "")), status_before(raw).jobs


def _moment(at: str | None) -> datetime:
    try:
        return parse_time(at) if at else datetime.now(UTC)
    except ValueError:
        fail(f"--at: {at!r} is no time; write RFC 3339, for example 2026-12-01T00:00:00Z")


def _saved(texts: list[str]) -> Fleet:
    """Of one file, or of several clusters by CLUSTER=FILE."""
    if len(texts) == 1 and "=" not in texts[0]:
        return _read(texts[0])
    named = [text.partition("=") for text in texts]
    files = {cluster: path for cluster, _, path in named if cluster and path}
    if len(files) < len(texts):
        fail("--fleet: of several clusters write CLUSTER=FILE for each, under another name: --fleet dc1=dc1.json")
    try:
        return joined({cluster: _read(path) for cluster, path in files.items()})
    except ValueError as error:
        fail(f"--fleet {error}")


def _read(path: str) -> Fleet:
    try:
        return read_fleet(read(path))
    except ValueError as error:
        fail(f"{path}: {error}")


def _shown(output: str, answer_status: PlanStatus, answer: PlanAnswer, name: str) -> str:
    document: dict[str, Any] = answer_status.model_dump(mode="json", by_alias=True, exclude_none=True)
    if output == PAGE:
        return page(name, answer_status, answer)
    form = OutputFormat(output)
    if form is OutputFormat.NAME:
        return f"{PLAN_KIND.lower()}.{GROUP}/{name}"
    rows = [flat(job) for job in answer_status.jobs]
    return printed(document, form, lambda more: _table(answer_status, wide if more else narrow), rows, HEADER)


def _table(answer_status: PlanStatus, row: Callable[[Any], dict[str, Any]]) -> str:
    first, *more = lines(answer_status)
    folds = () if row is wide else (FOLDS, (), DROPS)
    jobs = ["", as_columns([row(job) for job in answer_status.jobs], *folds), ""] if answer_status.jobs else []
    return "\n".join([wrapped(first), *jobs, *(wrapped(line, 2) for line in more)])
