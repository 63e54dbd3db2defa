"""NodePrecisionReport: the result of one profile on one node. Written by the operator alone."""

import re
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field

from precision_api.acceptance.values import Outcome
from precision_api.exchange import result
from precision_api.exchange.request import Mode
from precision_api.facts.recipes import MOST_RECIPES, Recipe
from precision_api.facts.schema import Decimal, Document, Name, ShortText, StatusDocument, Text
from precision_api.kinds.profile import Condition, SavedReference, Time

_ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}
Origin = Literal["measured", "replayed", "simulated", "trial"]
"""What a run's figures are; trial: of a CPU. One field that nobody measured makes all of them simulated."""


class ReportSpec(Document):
    """Whose result this is."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-map-type": "atomic",
            "x-kubernetes-validations": [
                {"rule": "self == oldSelf", "message": "spec is immutable: a report belongs to one profile and node"}
            ],
        }
    )

    profile: Name = Field(description="Name of the PrecisionProfile, in the same namespace.")
    node_name: Name = Field(description="Name of the node.")
    node_uid: Name = Field(
        alias="nodeUID", description="UID of the node: a node that comes back under the same name is another one."
    )


class ReportHardware(StatusDocument):
    """What was measured."""

    product: ShortText = Field(description="Product class, e.g. GB200.")
    gpus: int = Field(ge=0, description="Number of GPUs measured together.")
    gpus_by: Literal["claim"] | None = Field(
        None, description="claim: the agent got them by resource claim (DRA); absent: from the device plugin."
    )
    pool: ShortText = Field(description="Pool of the node when it was measured.")
    nvlink_domain: ShortText | None = Field(
        None, description="NVLink domain and clique by the node's labels, a rack's as a rule; absent outside of any."
    )
    limit_watts: int | None = Field(None, ge=0, description="Enforced power limits of all GPUs together.")
    slowest_gpu: ShortText | None = Field(
        None, alias="slowestGPU", description="UUID of the GPU that falls behind the most, where GPUs were compared."
    )
    sensor_accuracy: result.SensorAccuracy | None = Field(
        None, description="Whether the power sensor was calibrated against a known load."
    )


class ReportSoftware(StatusDocument):
    """Versions behind the figures."""

    driver: ShortText | None = Field(None, description="GPU driver.")
    cuda: ShortText | None = Field(None, description="CUDA version.")
    torch: ShortText | None = Field(None, description="PyTorch version.")
    transformer_engine: ShortText | None = Field(None, description="Transformer Engine version.")
    agent: ShortText | None = Field(None, description="Agent version.")
    stack_hash: ShortText | None = Field(None, description="Hash over all versions but those of driver and agent.")


class ReportMemory(StatusDocument):
    """GPU memory in use by NVML while the short model trained: of the run, whose recipes lie in one process."""

    used_bytes: int = Field(ge=0, description="The highest, of the fullest GPU.")
    total_bytes: int | None = Field(None, ge=0, description="All memory of that GPU.")
    counted: ShortText = Field("", description="How, where it is not NVML's figure without the driver's reserve alone.")


class ReportRun(StatusDocument):
    """One finished run."""

    run: ShortText = Field(description="Identity of the run.")
    request_hash: ShortText = Field(description="First digits of the SHA-256 of the request that was answered.")
    backend: ShortText = Field(description="replay, torch-cpu, torch-cuda or transformer-engine.")
    provenance: result.Provenance = Field(description="measured, replayed, simulated or trial (of a CPU).")
    simulated: tuple[ShortText, ...] = Field(
        (), max_length=32, description="Fields that were not measured.", json_schema_extra=_ATOMIC
    )
    partial: Text | None = Field(None, description="Why the run ended early; the figures there are good.")
    finished_at: Time = Field(description="When the run ended.")
    duration_seconds: Decimal = Field(description="How long it took.")
    passes: int | None = Field(None, ge=2, description="Complete palindromes: the units behind each interval.")
    workload: ShortText | None = Field(None, description="Name of the workload.")
    workload_hash: ShortText = Field(description="Hash of the workload's shapes.")
    timing: ShortText | None = Field(None, description="Number of the agent's timed loop, and its timing: 1/quick.")
    baseline: Recipe = Field("bf16", description="Recipe that speedups are relative to.")
    noise_floor: Decimal | None = Field(None, description="A speedup over it nearer to 1 is no difference.")
    gemm_error: Decimal | None = Field(
        None, description="Half-width of a 95 % interval of gemmSpeedup.autocast as a share of it, the widest recipe's."
    )
    scope: result.RecipeScope = Field("all", description="Which linear layers ran in the recipe: all or mlp.")
    training_flops_per_token: Decimal | None = Field(None, description="Training FLOPs of one token.")
    device_memory: ReportMemory | None = Field(None, description="Absent where nothing trained or NVML tells nothing.")
    detail: ShortText | None = Field(None, description="ConfigMap with the full result; absent: summary only.")
    detail_problem: Text | None = Field(None, description="Why the full result is missing.")
    detail_sha256: ShortText | None = Field(None, description="First digits of its SHA-256, as it was written.")


class ReportAttempt(StatusDocument):
    """The newest attempt, good or bad."""

    run: ShortText = Field(description="Identity of the run.")
    number: int = Field(ge=1, description="Which attempt of the run.")
    failures: int = Field(0, ge=0, description="Failed attempts of the run so far; disruptions don't count.")
    disruptions: int = Field(
        0, ge=0, description="Attempts in a row, this one included, that were disrupted: the rest grows with them."
    )
    node_losses: int = Field(
        0,
        ge=0,
        description="Attempts in a row that were lost with the node: it went, did not answer, or its kubelet ended the "
        "pod. Three quarantine it; a result or a drain sets this to 0.",
    )
    basis: dict[ShortText, ShortText] = Field(
        {}, max_length=9, description="What the run was started for: spec, agent, driver, hardware, schedule, rerun."
    )
    boot_id: ShortText | None = Field(None, alias="bootID", description="The node's boot when its Job was created.")
    started_at: Time | None = Field(None, description="When its Job was created.")
    outcome: Literal["succeeded", "failed", "disrupted"] = Field(description="How it ended.")
    reason: ShortText | None = Field(None, description="Why it did not succeed.")
    message: Text | None = Field(None, description="The reason in words, with the next step.")
    log: Text | None = Field(None, description="End of a failed agent's log, or why there is none: its Job is gone.")
    finished_at: Time = Field(description="When it ended.")


class ReportPast(StatusDocument):
    """A finished run, in short; with its figures once it is no longer the newest, whose figures are the report's."""

    run: ShortText = Field(description="Identity of the run.")
    outcome: Literal["succeeded", "failed"] = Field(description="How it ended.")
    reason: ShortText | None = Field(None, description="Why it failed, or what it was started for.")
    finished_at: Time = Field(description="When it ended.")
    best: ShortText | None = Field(None, description="Best recipe and speedup.")
    tokens_per_second: Decimal | None = Field(None, description="Rate of the best recipe.")
    driver: ShortText | None = Field(None, description="GPU driver.")
    data: Origin | None = Field(
        None, description="What its figures are; absent: not recorded, so unknown whether measured."
    )
    workload_hash: ShortText | None = Field(None, description="Hash of the workload's shapes.")
    stack_hash: ShortText | None = Field(None, description="Hash over all versions but those of driver and agent.")
    throttled: bool | None = Field(None, description="True where heat or the power brake held the node back.")
    recipe_tokens_per_second: dict[Recipe, Decimal] = Field(
        {},
        max_length=MOST_RECIPES,
        description="Training tokens/s of the node by recipe whose verdict is no doubt.",
    )
    recipe_tokens_per_joule: dict[Recipe, Decimal] = Field(
        {}, max_length=MOST_RECIPES, description="Tokens per joule of these, where power was valid."
    )
    rate_error: Decimal | None = Field(
        None, description="Largest half-width of these rates' 95 % intervals, as a share; absent where one is unknown."
    )


class Quarantine(StatusDocument):
    """A node that failed run after run; `kubectl precision rerun NODE` releases it."""

    since: Time = Field(description="When it began.")
    reason: ShortText = Field(description="Reason of the last failure.")
    message: Text = Field("", description="The reason in words.")


class RecipeReport(StatusDocument):
    """One recipe's figures; a figure that is absent was not measured or is not valid."""

    recipe: Recipe = Field(description="Recipe.")
    availability: result.Availability = Field(description="Whether the GPUs can run it.")
    verdict: result.Verdict = Field(
        description="Whether the precision really ran; assumed: of replayed or simulated figures, no kernel was seen."
    )
    teraflops_per_gpu: Decimal | None = Field(
        None, alias="teraflopsPerGPU", description="Model TFLOP/s of one GPU in training, full-depth model."
    )
    tokens_per_second: Decimal | None = Field(None, description="Training tokens/s of the node, full-depth model.")
    tokens_per_second_error: Decimal | None = Field(
        None, description="Half-width of its 95 % interval for any day, as a share of it (0.011 is 1.1 %)."
    )
    gpu_spread: Decimal | None = Field(
        None,
        alias="gpuSpread",
        description="Slowest GPU's rate over the mean of the node's GPUs; times tokensPerSecond: a synchronous job's.",
    )
    speedup: Decimal | None = Field(None, description="Training speedup over the baseline.")
    speedup_lower: Decimal | None = Field(None, description="Lower end of its 95 % interval.")
    speedup_upper: Decimal | None = Field(None, description="Upper end of its 95 % interval.")
    difference: result.Difference | None = Field(
        None, description="faster, slower, or no_difference from the baseline beyond the run's noise."
    )
    quantization_tax: Decimal | None = Field(
        None, description="Non-GEMM kernel time beyond the baseline's, as a share of it and the GEMM time."
    )
    quantization_tax_most: Decimal | None = Field(
        None, description="Where kernels can't be split: the tax is a lower bound, and this the upper one."
    )
    gemm_speedup: dict[Mode, Decimal] = Field({}, max_length=2, description="Speedup of all GEMMs, by mode.")
    watts: Decimal | None = Field(None, description="Mean draw of all GPUs; absent where power is not valid.")
    tokens_per_joule: Decimal | None = Field(None, description="Tokens per joule (= tokens/s per W).")
    tokens_per_joule_net: Decimal | None = Field(None, description="Tokens per joule with the idle draw taken off.")
    power_scope: Literal["gpu", "module"] | None = Field(None, description="What the watts are of.")
    power_invalid: tuple[ShortText, ...] = Field(
        (), max_length=8, description="Why there is no energy figure.", json_schema_extra=_ATOMIC
    )
    model_memory_bytes: int | None = Field(
        None,
        ge=0,
        description="Memory of one GPU that trains the full model, estimated by a formula that fits what the run took.",
    )
    allocated_peak_bytes: int | None = Field(
        None, ge=0, description="The allocator's peak of the short model that ran, of this recipe alone."
    )
    throttled_share: Decimal | None = Field(
        None, description="Share of the time (0 to 1) that heat or the power brake held the clocks back, beyond 0.001."
    )
    throttle_reason: result.ThrottleReason | None = Field(None, description="Which of them.")
    diverged_step: int | None = Field(None, ge=0, description="Step at which a loss run diverged.")
    loss_verdict: ShortText | None = Field(
        None, description="Of the loss runs: healthy, not_learning, diverging or diverged; absent where none ran."
    )
    last_layers_bf16: int | None = Field(None, ge=0, alias="lastLayersBF16", description="Last layers kept in BF16.")
    listed: bool = Field(False, description="Whether the profile lists the recipe by name.")
    failure: ShortText | None = Field(None, description="What failed first.")


class ReportRecommendation(StatusDocument):
    """Which recipe to use on this node."""

    by_speed: Recipe | None = Field(None, description="Fastest recipe whose precision is not in doubt.")
    by_energy: Recipe | None = Field(None, description="Verified recipe with the most tokens per joule.")
    fallback: Recipe | None = Field(None, description="What to fall back to.")
    sentence: Text = Field("", description="The reason in one sentence.")


class AcceptanceCheck(NamedTuple):
    """One check of one recipe, of a GPU or of the node; a line of `checks` for programs."""

    recipe: str
    check: str
    off: float
    """Per cent above (below: negative) what is expected."""
    limit: float | None
    """At this many per cent below, or more, the check fails; None where none can be promised."""
    fails: bool
    number: int | None
    """The GPU's on its node; None where the node is judged as a whole."""
    gpu: str | None
    """Its UUID."""
    pci: str | None


CheckLine = Annotated[
    str, Field(pattern=r"^[a-z0-9_]+ [a-z]+ -?[0-9.]+ ([0-9.]+|-) ([0-9]+|-)( Fail)?$", max_length=64)
]


class AcceptanceRuns(StatusDocument):
    """What the verdict rests on: the rates of runs that are averaged, in 100 ln(tokens/s)."""

    run: ShortText = Field(description="The newest run that was read, and when it ended.")
    number: int = Field(1, ge=1, description="Which run of the present doubt it is: the third is the last.")
    averages: tuple[Annotated[str, Field(max_length=2048)], ...] = Field(
        (), max_length=4, description="By hash of what they share: each run's rates.", json_schema_extra=_ATOMIC
    )
    kernels: dict[Recipe, ShortText] = Field(
        {}, max_length=MOST_RECIPES, description="How the newest run ran: kernels, last layers; absent: verified."
    )
    troubles: dict[Recipe, ShortText] = Field(
        {}, max_length=MOST_RECIPES, description="Why the newest run says nothing of the GPUs with a recipe."
    )

    @property
    def ended(self) -> str:
        """When the newest run ended."""
        return self.run.rpartition(" ")[2]


class AcceptanceSubject(StatusDocument):
    """Whom the verdict is on, beside spec.nodeUID: none of this may have changed since."""

    boot_id: ShortText = Field("", alias="bootID", description="The node's boot when it was measured.")
    driver: ShortText | None = Field(None, description="GPU driver.")
    gpus: tuple[ShortText, ...] = Field(
        (), max_length=16, description="UUIDs of its GPUs, in the order of their numbers.", json_schema_extra=_ATOMIC
    )
    pci: tuple[ShortText, ...] = Field(
        (), max_length=16, description="Their PCI addresses, where all are known.", json_schema_extra=_ATOMIC
    )


class ReportAcceptance(StatusDocument):
    """May this node take work? Only Pass opens, only Fail accuses."""

    verdict: Outcome | None = Field(None, description="Pass, Fail or Inconclusive.")
    reason: ShortText = Field("", description="Why, in one CamelCase word.")
    message: Text = Field("", description="What failed, by how much, against what.")
    decided_at: Time | None = Field(None, description="When the verdict was given.")
    valid_until: Time | None = Field(None, description="When a Pass ends.")
    again: bool = Field(False, description="Whether one more run of the same timing is to end the doubt.")
    basis: ShortText = Field("", description="Hash of what was decided from: with another one it is decided again.")
    reference: SavedReference | None = Field(None, description="What the node was compared with.")
    subject: AcceptanceSubject | None = Field(None, description="Whom the verdict is on.")
    runs: AcceptanceRuns | None = Field(None, description="What the verdict rests on.")
    unhealthy: ShortText | None = Field(None, description="What a health counter said.")
    unhealthy_boot_id: ShortText = Field("", alias="unhealthyBootID", description="On which boot it said so.")
    barred: bool = Field(False, description="Whether it did so on an unknown boot: no Pass until a whole run.")
    checks: tuple[CheckLine, ...] = Field(
        (),
        max_length=3 * MOST_RECIPES + 8,
        description="The worst GPU of each recipe and check, and other GPUs that fail, worst first: recipe, check "
        "(reference: the node against the reference; node: a GPU against its node's others; change: a GPU against its "
        "own first Pass), per cent off, per cent below at which it fails, the GPU's number in subject.gpus, Fail.",
        json_schema_extra=_ATOMIC,
    )

    @property
    def worst(self) -> tuple[AcceptanceCheck, ...]:
        """The lines of `checks`, for programs."""
        return tuple(map(self._read, self.checks))

    @property
    def failing(self) -> tuple[AcceptanceCheck, ...]:
        """Those that fail, or GPUs of which a health counter speaks."""
        slow, of = tuple(check for check in self.worst if check.fails), self.subject or AcceptanceSubject()
        named = re.findall(r"GPU-[\w-]+", self.message) if self.verdict == "Fail" and not slow else ()
        numbers, pci = {gpu: at for at, gpu in enumerate(of.gpus)}, dict(zip(of.gpus, of.pci, strict=False))
        return slow or tuple(AcceptanceCheck("", "", 0, None, True, numbers.get(it), it, pci.get(it)) for it in named)

    def _read(self, line: str) -> AcceptanceCheck:
        recipe, check, off, limit, gpu, *fails = line.split()
        subject, number = self.subject or AcceptanceSubject(), None if gpu == "-" else int(gpu)
        uuid, pci = (dict(enumerate(of)).get(-1 if number is None else number) for of in (subject.gpus, subject.pci))
        below = None if limit == "-" else float(limit)
        return AcceptanceCheck(recipe, check, float(off), below, bool(fails), number, uuid, pci)


class ReportStatus(StatusDocument):
    """The node's newest good result and its newest attempt. One writer: managedFields need not list its fields."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})

    conditions: tuple[Condition, ...] = Field(
        (), max_length=4, description="Fresh, Succeeded.", json_schema_extra=_ATOMIC
    )
    hardware: ReportHardware | None = Field(None, description="What was measured.")
    software: ReportSoftware | None = Field(None, description="Versions behind the figures.")
    run: ReportRun | None = Field(None, description="The newest run with a result.")
    attempt: ReportAttempt | None = Field(None, description="The newest attempt, good or bad.")
    results: tuple[RecipeReport, ...] = Field(
        (), max_length=MOST_RECIPES, description="Figures by recipe.", json_schema_extra=_ATOMIC
    )
    recommendation: ReportRecommendation | None = Field(None, description="Which recipe to use here.")
    history: tuple[ReportPast, ...] = Field(
        (), max_length=10, description="The last runs, newest first.", json_schema_extra=_ATOMIC
    )
    failed_runs: int = Field(0, ge=0, description="Runs in a row that ended without a result.")
    quarantine: Quarantine | None = Field(None, description="Set while the node is left alone.")
    acceptance: ReportAcceptance | None = Field(None, description="The verdict, where the profile asks for one.")
    best: ShortText | None = Field(None, description="Best recipe and speedup, for kubectl's columns.")
    best_recipe: Recipe | None = Field(None, description="Best recipe.")
    best_speedup: Decimal | None = Field(None, description="Its training speedup over the baseline.")
    teraflops_per_gpu: ShortText | None = Field(
        None, alias="teraflopsPerGPU", description="TFLOP/s per GPU in training with the best recipe, for columns."
    )
    tokens_per_joule: ShortText | None = Field(None, description="Tokens per joule of the best recipe, for columns.")
    data: ShortText | None = Field(
        None, description="measured, replayed, simulated or trial (of a CPU), for kubectl's columns."
    )
    state: ShortText | None = Field(None, description="The conditions in one word, for kubectl's columns.")
