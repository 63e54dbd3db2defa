"""`precision-agent check`: may this node take work? Measures it and answers by exit code; needs no Kubernetes.

Each run is a process of its own, so that a crash is a crash: what says nothing of the GPUs ends with a code that is no
verdict.
"""

import ctypes
import fcntl
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
from pydantic import Field, FiniteFloat, TypeAdapter

from precision_agent.method import duration
from precision_agent.power import nvml, preflight, throttle
from precision_agent.run.local import names_of, plain_name
from precision_agent.run.open import VISIBLE, chosen
from precision_agent.run.options import BackendOption, Form, Partial, ReplayFault, ReplayScale, ReplaySeed
from precision_agent.run.publish import TERMINATION_LOG_ENV, places, replace_file
from precision_api.acceptance.judge import MOST_RUNS, WORST_FIRST, judge
from precision_api.acceptance.reference import Reference, look_at, read_reference, sha256_of
from precision_api.acceptance.series import counting, judged
from precision_api.acceptance.values import UNHEALTHY, Finite, Look, Row, Verdict, logs, percent
from precision_api.exchange import exits
from precision_api.exchange.peers import watts_text
from precision_api.exchange.request import RequestNode, canonical, digest, request_json
from precision_api.exchange.result import MeasurementResult
from precision_api.facts.names import SHARED_MEMORY
from precision_api.facts.recipes import Recipe

CODES = {"Pass": 0, "Fail": exits.NOT_ACCEPTED.code, "Inconclusive": exits.UNDECIDED.code, "Skipped": 0}
NO_FIGURE = frozenset({12, 13, 14, 15, 17, 18, 19, 21})
"""Exit codes of a run that name why there is no figure: Inconclusive. Every other one is handed on as it is."""
DRIVER = Path("/proc/driver/nvidia/version")
"""There where a driver is loaded, in each container too, though NVML may be broken."""
DEVICES, GIVEN, OF_NODE = Path("/dev"), "NVIDIA_VISIBLE_DEVICES", Path("/sys/bus/pci/drivers/nvidia")
"""The last has a link for each GPU of the node, in containers too; /proc/driver/nvidia may be cut to those given."""
MEMORY_SECONDS, MOST_ASIDE = 24 * 3600, 64
MOST_BYTES = 2048  # of the last line: what a kubelet keeps of a log where there is no termination message
MOST_FAILING = 8
MOST_RATES_IN_ENVIRONMENT = 512
PRCTL, PR_SET_PDEATHSIG = getattr(ctypes.CDLL(None), "prctl", None), 1
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NODE = plain_name(os.environ.get("NODE_NAME") or platform.node())


def check(
    reference: Annotated[str, typer.Option(help="File with the reference, or env:NAME.")],
    reference_sha256: Annotated[str | None, typer.Option(help="Its SHA-256: another text gives no Pass.")] = None,
    recipes: Annotated[list[str] | None, typer.Option(help="Recipes to judge; left out, the reference's.")] = None,
    split: Annotated[str, typer.Option(help="LABEL=VALUE of this node, where the reference holds for one value.")] = "",
    state: Annotated[str | None, typer.Option(help="Folder that keeps runs for 24 h: retries average.")] = None,
    evidence: Annotated[str | None, typer.Option(help="Folder for what a vendor asks for.")] = None,
    shift: Annotated[float, typer.Option(help="Per cent that the fleet's last nodes lie off the reference.")] = 0.0,
    plan: Annotated[bool, typer.Option("--plan", help="Only say how long each phase takes.")] = False,
    form: Annotated[Form, typer.Option("--output", "-o", help="json: a line for each check.")] = Form.table,
    partial: Annotated[Partial, typer.Option(help="With some of the node's GPUs: end with 31 or 0.")] = Partial.refuse,
    accept_simulated: Annotated[bool, typer.Option(help="For trials without a GPU: replayed figures count.")] = False,
    backend: BackendOption = "auto",
    replay_scale: ReplayScale = 1.0,
    replay_seed: ReplaySeed = 0,
    replay_fault: ReplayFault = None,
) -> None:
    """Says whether this node may take work: exit code 0 is Pass, 30 Fail, 31 Inconclusive, every other no verdict."""
    held, sha256 = _read(reference)
    for name, text in {"--reference-sha256": reference_sha256, "--state": state, "--evidence": evidence}.items():
        if text is not None and not text.strip():
            raise typer.BadParameter("it is empty, as from a variable that is not set", param_hint=name)
    if plan:
        phases = duration.phases(held.request)
        had = held.resources | {"/dev/shm": SHARED_MEMORY}
        if form is Form.json:
            typer.echo(canonical(duration.as_document(phases) | {"resources": had, "most_runs": MOST_RUNS}))
            return
        typer.echo(duration.as_text(phases))
        typer.echo("give it what the golden nodes had: " + ", ".join(map(" ".join, had.items())))
        typer.echo(f"one run passes most nodes; three, the most: {MOST_RUNS * duration.total_seconds(phases):.0f} s")
        return
    names = names_of(recipes or ())
    if unknown := [name for name in names if name not in held.recipes]:
        raise typer.BadParameter(f"{unknown[0]} is none of {', '.join(held.recipes)}", param_hint="--recipes")
    wanted = [recipe for recipe in held.recipes if recipe in names or not names]
    seen = nvml.read()
    driver = seen.failure is None or seen.failure.reason == "nvml_failed" or DRIVER.exists()
    if accept_simulated and driver:
        raise typer.BadParameter("there is a GPU's driver here: measure", param_hint="--accept-simulated")
    if not abs(shift) < 100:
        raise typer.BadParameter(f"{shift} is no per cent that a fleet shifts by", param_hint="--shift")
    options = ["--backend", backend, "--replay-scale", f"{replay_scale}", "--replay-seed", f"{replay_seed}"]
    options += ["--replay-fault", replay_fault] if replay_fault else []
    uuids = chosen([gpu.uuid for gpu in seen.gpus], os.environ.get(VISIBLE), None)
    memory = Path(state, f"{digest([held.key, accept_simulated], 16)}.json") if state else None
    call = Call(held, sha256, wanted, logs(shift), accept_simulated, options, memory, uuids if seen.gpus else None)
    watts, key = [gpu.enforced_limit_watts for gpu in seen.gpus if gpu.uuid in uuids], held.peers
    if (seen.driver, watts_text(round(sum(filter(None, watts))))) == (key.driver, key.limit_watts):
        call.shown = {"gpus": uuids, "watts": watts, "driver": seen.driver, "stackHash": key.software}
    with ExitStack() as end:
        verdict = call.refused(reference_sha256, split) or (state and _held(Path(state), end)) or call.decided()
    outcome = "Skipped" if (partial, verdict.reason) == (Partial.skip, "PartialNode") else verdict.outcome
    _say_all(call, verdict, outcome, Path(evidence) if evidence else None, form)
    raise typer.Exit(CODES[outcome])


def _given() -> int | None:
    """GPUs that this container was given, by its device plugin or its device files; None where neither says it.

    NVML does not tell it: a GPU that fell off the bus is missing there, and its node is no partial one.
    """
    names = os.environ.get(GIVEN, "").split(",")
    if all(name.isdigit() or name.startswith("GPU-") for name in names):
        return len(names)
    return len([*DEVICES.glob("nvidia[0-9]*")]) or None


def _held(folder: Path, end: ExitStack) -> Verdict | None:
    """Holds the folder of kept runs until the end; the verdict where another check does: it would lose these runs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        end.callback(os.close, lock := os.open(folder, os.O_RDONLY))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        typer.echo(f"precision-agent: another check uses {folder}: check again when it has ended", err=True)
        return Verdict("Inconclusive", "CheckRunning")
    except OSError as error:
        typer.echo(f"precision-agent: {folder} can't be locked, another check may use it too: {error}", err=True)
    return None


def _read(source: str) -> tuple[Reference, str]:
    """The reference and its SHA-256, from a file or the environment."""
    name = source.removeprefix("env:")
    try:
        text = Path(source).read_text(encoding="utf-8") if name == source else os.environ[name]
        held = read_reference(text)
    except (OSError, KeyError, ValueError) as error:
        raise typer.BadParameter(f"{source}: {error}"[:1024], param_hint="--reference") from None
    rates = sum(len(speeds) for node in held.nodes.values() for speeds in node.speeds.values())
    if name != source and rates > MOST_RATES_IN_ENVIRONMENT:
        message = f"{rates} rates: an environment holds {MOST_RATES_IN_ENVIRONMENT}; mount a file"
        raise typer.BadParameter(message, param_hint="--reference")
    return held, sha256_of(text)


@dataclass(frozen=True, slots=True)
class Kept:
    """A run that counts."""

    at: FiniteFloat  # when it ended, seconds since 1970
    speeds: dict[str, Annotated[dict[str, Finite], Field(min_length=1)]]
    """By recipe and how it ran, then by GPU: 100 ln(tokens/s)."""
    boot: str = ""
    up: FiniteFloat = 0.0  # seconds from that boot to `at`: nobody sets this clock


@dataclass
class Call:
    """One call: what is asked for, and the runs that it made."""

    reference: Reference
    sha256: str
    recipes: Sequence[Recipe]
    shift: float
    simulated: bool
    options: Sequence[str]
    memory: Path | None
    uuids: Sequence[str] | None = None  # the GPUs to measure; None where NVML shows none
    shown: dict[str, Any] = field(default_factory=dict)
    """Of GPUs under the reference's key: what a verdict is repeated with."""
    subject: dict[str, Any] = field(default_factory=dict)  # of the last line: what it is about
    memoryless: bool = False
    aside: list[Kept] = field(default_factory=list)  # runs that count by another clock alone: this one may be wrong
    results: list[MeasurementResult] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    terminated: bool = False

    def refused(self, sha256: str | None, split: str) -> Verdict | None:
        """Why nothing has to be measured to see that there is no answer."""
        visible, gpus = _given(), self.reference.request.node.gpus
        all_of = gpus if self.simulated else len([*OF_NODE.glob("*:*")])
        if visible is not None and visible < min(gpus, all_of) and gpus != len(self.uuids or ()):
            typer.echo(f"precision-agent: nothing is judged: {visible} of the node's {all_of} GPUs are here", err=True)
            return Verdict("Inconclusive", "PartialNode")
        same = sha256 is None or sha256.strip().lower().removeprefix("sha256:") == self.sha256
        if problem := self.reference.problem(datetime.now(UTC)) if same else "ReferenceReplaced":
            return Verdict("Inconclusive", problem)
        if split != (asked := ",".join(map("=".join, self.reference.split.items()))):
            typer.echo(f"precision-agent: --split is '{split}', the reference's '{asked}'", err=True)
            return Verdict("Inconclusive", "OtherKey")
        return Verdict("Inconclusive", "OtherGPUs") if self.uuids is not None and len(self.uuids) != gpus else None

    def decided(self) -> Verdict:
        """The verdict on kept and new runs. What did not pass in three runs is repeated: a retry does not fish."""
        rows, looks = self.remembered(), list[Look]()
        verdict, count = self._judged(rows, self.shown.get("gpus", ()), {})
        if verdict.outcome != "Pass" and count >= MOST_RUNS:
            self.subject = self.shown
            return verdict
        for number in range(1, MOST_RUNS + 1):
            if isinstance(look := self.look(number), Verdict):
                return look
            looks.append(look)
            speeds = {r: dict(of) for r, of in look.speeds.items() if r not in look.troubles}
            checks = self._judge([replace(look, throttled={})]).rows
            cool = {self._kind(recipe): of for recipe, of in speeds.items() if not look.is_hot(recipe, checks)}
            if cool:  # what says nothing of the GPUs is not held against them later
                rows = [*rows, Kept(time.time(), cool, *_boot())]
                self.remember(rows)
            before, count = self._judged(rows, {*chain(*speeds.values())}, look.troubles)
            both = [before] * bool(count) + [self._judge(looks)]  # old runs don't hide a new fault
            verdict = min(both, key=lambda judged: WORST_FIRST.index(judged.outcome))
            if not verdict.again or self.terminated:
                break
        return verdict

    def _kind(self, recipe: Recipe) -> str:
        golden = self.reference.recipes[recipe]
        return f"{recipe}/{golden.kernels}/{golden.last_layers_bf16}"

    def _judge(self, looks: Sequence[Look]) -> Verdict:
        return judge(self.reference.recipes, looks, self.recipes, shift=self.shift)

    def _judged(self, rows: Sequence[Kept], gpus: Collection[str], why: Mapping[Recipe, str]) -> tuple[Verdict, int]:
        """The verdict on kept runs, and how many it rests on."""
        kinds = {recipe: self._kind(recipe) for recipe in self.recipes}
        looks = [Look({r: row.speeds[kind] for r, kind in kinds.items() if kind in row.speeds}) for row in rows]
        return judged(counting(looks, self._judge), gpus, self._judge, why)

    def _end(self, number: int, frame: FrameType | None) -> None:
        """Hands SIGTERM on: the run ends with what is complete, and no other one begins."""
        self.terminated = True
        if self.process is not None:
            self.process.terminate()

    def look(self, number: int) -> Look | Verdict:
        """One more run as the decision reads it, or the verdict of one without a result or of a GPU that it broke."""
        signal.signal(signal.SIGTERM, self._end)
        if isinstance(measured := self._run(number), Verdict):
            return measured
        self.results.append(measured)
        gpus = [gpu.uuid for gpu in measured.gpus]
        self.subject = {"gpus": gpus, "watts": [gpu.enforced_limit_watts for gpu in measured.gpus]}
        self.subject |= {"driver": measured.software.driver, "stackHash": measured.software.stack_hash}
        health = preflight.read_health(self.uuids or gpus) if self.uuids or nvml.read().gpus else ()
        if ill := [it.reason for it in preflight.findings(health) if it.exit == exits.GPU_UNHEALTHY]:
            return self._unhealthy(" ".join(ill))
        look, golden = look_at(measured, self.reference, self.simulated), self.reference.recipes
        hot = any((gpu.clock_reasons or 0) & throttle.MARKING_BITS for gpu in health)
        other = {*gpus} != {*(self.uuids or gpus)}
        odd = {r: other or {*of} != {*gpus} or golden[r].is_beyond(of) for r, of in look.speeds.items()}
        troubles = {r: "NotMeasured" for r, is_odd in odd.items() if is_odd} | dict(look.troubles)
        marked = dict.fromkeys(golden if hot else (), throttle.MARKING_SHARE) | {**look.throttled}
        return replace(look, throttled=marked, troubles=troubles)

    def _run(self, number: int) -> MeasurementResult | Verdict:
        """One run in a process of its own; the verdict of one without a result; exits with any code that is none."""
        asked = self.reference.request
        node = RequestNode(name=NODE, uid="check", product=asked.node.product, gpus=asked.node.gpus)
        timing = asked.timing.model_copy(update={"seed": asked.timing.seed + number})
        request = asked.model_copy(update={"node": node, "run": f"check-{number}", "timing": timing})
        with tempfile.TemporaryDirectory(prefix="precision-check-") as folder:
            files = [Path(folder) / name for name in ("request.json", "result.json", "message")]
            files[0].write_text(request_json(request), encoding="utf-8")
            options = ["--request", str(files[0]), "--output", str(files[1]), "--no-lines", *self.options]
            command = [sys.executable, "-m", "precision_agent", "run", *options]
            environment = os.environ | {TERMINATION_LOG_ENV: str(files[2])}
            end_with_us = PRCTL and (lambda: PRCTL(PR_SET_PDEATHSIG, signal.SIGTERM))
            self.process = subprocess.Popen(command, env=environment, stdout=2, preexec_fn=end_with_us)
            code = self.process.wait()
            if code == 0:
                return MeasurementResult.model_validate_json(files[1].read_bytes())
            if code not in NO_FIGURE:
                raise typer.Exit(1 if code in CODES.values() else code if code > 0 else 128 - code)
            said = files[2].read_text(encoding="utf-8") if files[2].exists() else ""
        if code == exits.GPU_UNHEALTHY.code:
            return self._unhealthy(said)
        return Verdict("Inconclusive", exits.exit_of(code).reason)

    def _unhealthy(self, said: str) -> Verdict:
        """By the words of a preflight: a Fail where a health counter speaks."""
        bad = next((reason for word, reason in UNHEALTHY.items() if word in said), "")
        return Verdict("Fail", bad) if bad else Verdict("Inconclusive", exits.GPU_UNHEALTHY.reason)

    def remembered(self) -> list[Kept]:
        """The runs of the last 24 hours against references of this key; what can't be read is kept aside."""
        try:
            text = self.memory.read_bytes() if self.memory and self.memory.exists() else b"[]"
            rows = TypeAdapter(list[Kept]).validate_json(text)
        except (OSError, ValueError):
            self.memoryless, rows, aside = True, [], f"{self.memory}.unread"
            typer.echo(f"precision-agent: {self.memory} can't be read, no run in it counts: see {aside}", err=True)
            with suppress(OSError):
                os.replace(f"{self.memory}", aside)
        now, (boot, up) = time.time(), _boot()
        ages = [(row, up - row.up if boot and row.boot == boot else now - row.at) for row in rows]
        self.aside = [row for row, age in ages if abs(age) >= MEMORY_SECONDS][-MOST_ASIDE:]
        self.memoryless |= any(age <= -MEMORY_SECONDS for _, age in ages)
        if self.aside:
            typer.echo(f"precision-agent: {len(self.aside)} kept runs, 24 h away by this clock, don't count", err=True)
        return [row for row, age in ages if abs(age) < MEMORY_SECONDS]

    def remember(self, rows: Sequence[Kept]) -> None:
        """Keeps the runs that count, where there is a folder for them."""
        self.memoryless |= self.memory is None or not _write(self.memory, [asdict(row) for row in [*self.aside, *rows]])


def _boot() -> tuple[str, float]:
    """The boot's id, and seconds since."""
    return BOOT_ID.read_text().strip() if BOOT_ID.exists() else "", time.clock_gettime(time.CLOCK_BOOTTIME)


def _say_all(call: Call, verdict: Verdict, outcome: str, evidence: Path | None, form: Form) -> None:
    """Evidence first, for a failed Job is deleted with its log; then each check, and the verdict in the last line."""
    rows = [_row(row) for row in verdict.rows]
    subject: dict[str, Any] = {"node": NODE, "bootId": _boot()[0]}
    document: dict[str, Any] = {
        "verdict": outcome,
        "reason": verdict.reason,
        "reference": call.sha256,
        "recipes": call.recipes,
        "subject": subject | call.subject,
        "memoryless": call.memoryless or call.memory is None,
        "worst": list({row["check"]: row for row in reversed(rows)}.values()),
        "failing": [row for row in rows if row["outcome"] == "Fail"][:MOST_FAILING],
    }
    if evidence is not None:
        results = [result.model_dump(mode="json", by_alias=True, exclude_none=True) for result in call.results]
        kept = document | {"checks": rows, "results": results, "health": nvml.identities()}
        document["evidence"] = _write(evidence / f"check-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}-{NODE[:200]}.json", kept)
    while len(line := canonical(document)) > MOST_BYTES and document["failing"]:
        document["failing"].pop()
    if form is Form.json:
        for row in rows:
            typer.echo(canonical(row))
    elif verdict.outcome != "Pass" and rows:
        worst = verdict.rows[0]
        whom = f"GPU {worst.gpu}" if worst.gpu else f"node {NODE}"
        limit = f"check {worst.check} fails at {percent(-worst.limits.fail):.1f} %"
        typer.echo(f"{whom} is {percent(worst.off):+.1f} % off with {worst.recipe}; {limit}")
    typer.echo(line)
    if (message := places(os.environ, None).message) is not None:
        with suppress(OSError):  # the log has the same
            message.write_text(line, encoding="ascii")


def _row(row: Row) -> dict[str, Any]:
    """A check for programs; limits are absent where the reference promises nothing."""
    limits = {"fail": row.limits.fail, "passes": row.limits.passes}
    rounded = {name: round(-percent(-limit), 2) for name, limit in limits.items() if abs(limit) < 1e6}
    rounded["off"] = round(percent(row.off), 2)
    return {"check": row.check, "recipe": row.recipe, "gpu": row.gpu, "outcome": row.outcome} | rounded


def _write(path: Path, document: Any) -> bool:
    """Keeps a document, and whether it did; a full disk takes no answer away."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, canonical(document).encode())
        return True
    except OSError as error:
        typer.echo(f"precision-agent: keeping {path}: {error}", err=True)
        return False
