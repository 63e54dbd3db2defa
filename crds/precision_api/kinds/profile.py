"""PrecisionProfile: what to measure, on which nodes, how many at once; and what has come of it.

The CustomResourceDefinition is generated from these models: every field has a description, every list and string a
bound. A field is here once something reads it.
"""

import re
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from precision_api.exchange.request import NO_SCOPE, AttentionCore
from precision_api.facts.mixtures import NO_BASELINE, MixtureName, Mixtures, named_of
from precision_api.facts.names import DEFAULT_POOL_LABEL
from precision_api.facts.recipes import MOST_LISTED, RECIPE_NAMES, Recipe
from precision_api.facts.schema import Decimal, Document, Name, Rule, ShortText, StatusDocument, StringMap, Text
from precision_api.kinds import fields
from precision_api.models.workload import Workload

LabelValue = Annotated[str, Field(max_length=63)]


class MatchExpression(Document):
    """One requirement on a node's labels, as in a node selector term."""

    RULES = (
        Rule(
            "(self.operator in ['Exists', 'DoesNotExist']) == (!has(self.values) || size(self.values) == 0)",
            "values must be set for In, NotIn, Gt and Lt, and left out for Exists and DoesNotExist",
            lambda e: (e.operator in ("Exists", "DoesNotExist")) == (not e.values),
        ),
        Rule(
            "!(self.operator in ['Gt', 'Lt']) || (has(self.values) && size(self.values) == 1 "
            "&& self.values[0].matches('^-?[0-9]+$'))",
            "Gt and Lt take exactly one value, an integer written as a string",
            lambda e: (
                e.operator not in ("Gt", "Lt") or (len(e.values) == 1 and bool(re.fullmatch("-?[0-9]+", e.values[0])))
            ),
        ),
    )

    key: fields.LabelKey = Field(description="Label key to look at.")
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = Field(description="How to compare.")
    values: tuple[LabelValue, ...] = Field((), max_length=256, description="Values to compare with.")

    @cached_property
    def value_set(self) -> frozenset[str]:
        """The values, to look one up among many."""
        return frozenset(self.values)


class TaintMatch(Document):
    """A taint to stay away from."""

    key: fields.LabelKey = Field(description="Taint key.")
    value: LabelValue | None = Field(None, description="Taint value; left out, any value matches.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="Taint effect; left out, any effect matches."
    )


class Target(Document):
    """Which nodes are measured: all conditions must hold; an empty target means every node with supported GPUs."""

    RULES = (
        Rule(
            "!has(self.cordoned) || self.cordoned != 'Include' || (has(self.nodeNames) && size(self.nodeNames) > 0)",
            "cordoned: Include needs nodeNames: name the cordoned nodes to measure",
            lambda target: target.cordoned != "Include" or bool(target.node_names),
        ),
    )

    node_selector: StringMap = Field({}, description="Labels that a node must have.")
    match_expressions: tuple[MatchExpression, ...] = Field(
        (), max_length=32, description="Further requirements on labels; all must hold."
    )
    node_names: tuple[Name, ...] = Field((), max_length=1024, description="Only these nodes, by name.")
    products: fields.Products = Field(
        (),
        max_length=32,
        description="Only these GPU products: H100, H200, B200, B300, GB200, GB300, or any other name as nodes are "
        "labelled with it, such as NVIDIA-GH200-480GB: such a GPU is measured as far as Transformer Engine runs there, "
        "and its peaks are unknown. Default: the six.",
    )
    exclude_taints: tuple[TaintMatch, ...] = Field(
        (), max_length=32, description="Nodes with one of these taints are skipped, tolerated or not."
    )
    cordoned: Literal["Skip", "Include"] = Field(
        "Skip",
        description="Skip: a cordoned node waits until it is uncordoned. Include: it is measured while cordoned, as "
        "after a repair; only with nodeNames, so that no drain is worked against.",
    )

    @cached_property
    def named(self) -> frozenset[str]:
        """The names, to look one up among many."""
        return frozenset(self.node_names)


class GemmBenchmark(Document):
    """Every matrix multiplication of the workload by itself."""

    enabled: bool = Field(True, description="Measure GEMMs.")
    modes: fields.Modes = Field(
        ("autocast", "prequantized"),
        min_length=1,
        max_length=2,
        description="autocast: quantisation included, as in training; prequantized: the multiplication alone.",
    )


class TrainingBenchmark(Document):
    """A short training run, reported as the rate of the full-depth model."""

    enabled: bool = Field(True, description="Measure training.")
    may_halve_micro_batch: bool = Field(
        False, description="Out of memory halves the micro batch for all recipes instead of failing."
    )
    attention_core: AttentionCore | None = Field(
        None,
        description="FP8 recipe of attention's own products, in every recipe but bf16: cuDNN's kernels, probed on the "
        "GPU. Left out: BF16. Hopper has fp8_delayed alone; none takes sliding windows.",
    )
    primary_weights: Literal["bf16", "recipe"] = Field(
        "bf16",
        description="How the layers' weights are held beside the optimizer's FP32 ones. recipe: quantised alone, as "
        "with quantized_model_init.",
    )
    weight_gradients: Literal["fused", "separate"] | None = Field(
        None,
        description="How the weight gradients of several micro batches add up. fused: in FP32 by the GEMM itself, as "
        "Megatron Core does; separate: in BF16, in kernels of their own. Left out: fused.",
    )


class LossBenchmark(Document):
    """Short untimed training runs: does a recipe's loss fall like the baseline's? A smoke test, never parity."""

    enabled: bool | None = Field(
        None, description="Run it. Left out: with preset standard and a model that has a vocabulary."
    )
    steps: Annotated[int, Field(ge=10, le=1000)] = Field(50, description="Steps of one run.")
    seeds: Annotated[int, Field(ge=1, le=3)] | None = Field(
        None,
        description="Runs of each recipe, each with its own seed; left out, 3 with preset standard and 1 with quick. "
        "The distance from the baseline has a band from 2 on.",
    )


class Benchmarks(Document):
    """What is measured, and how long."""

    RULES = (
        Rule(
            "self.gemm.enabled || self.training.enabled",
            "nothing to measure: enable gemm or training",
            lambda benchmarks: benchmarks.gemm.enabled or benchmarks.training.enabled,
        ),
        Rule(
            "self.training.enabled || (!has(self.training.attentionCore) && self.training.primaryWeights == 'bf16')",
            "attentionCore and primaryWeights change the training step alone: enable training, or leave them out",
            lambda it: it.training.enabled or (it.training.attention_core or it.training.primary_weights) == "bf16",
        ),
    )

    preset: Literal["quick", "standard"] = Field(
        "quick", description="quick: 4 passes of 1.75 s segments; standard: 12 passes of 2.8 s segments."
    )
    gemm: GemmBenchmark = Field(GemmBenchmark(), description="GEMM benchmark.")
    training: TrainingBenchmark = Field(TrainingBenchmark(), description="Training benchmark.")
    loss: LossBenchmark = Field(LossBenchmark(), description="Loss runs.")
    baseline: MixtureName = Field(
        "bf16", description="Recipe or mixture that speedups are relative to; it is always measured."
    )
    scope: Literal["all", "mlp"] = Field(
        "all",
        description="all: every linear layer runs in the recipe; mlp: attention's projections stay in BF16.",
    )
    last_layers_bf16: Annotated[int, Field(ge=0, le=2048)] | None = Field(
        None,
        alias="lastLayersBF16",
        description="How many of the model's last layers stay in BF16 in the training figures of NVFP4, computed from "
        "BF16's measured layers. Left out: 15 % of them, rounded up, as NVIDIA advises; 0: none, which is a risk.",
    )


class PoolLimit(Document):
    """Limits for the nodes of one pool, beside the profile's own; agents of all profiles of its namespace count."""

    name: ShortText = Field(description="Value of the pool label.")
    max_concurrent: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Most agents at once in this pool."
    )
    power_budget_watts: fields.Watts | None = Field(
        None, description="Most power, by enforced limits, that running agents of this pool may draw together."
    )


class TopologyLimit(Document):
    """A limit for each group of nodes that share a label's value: a rack, an NVLink domain, a zone."""

    key: fields.LabelKey = Field(description="Node label whose value names the group.")
    max: Annotated[int, Field(ge=1, le=100_000)] = Field(description="Most agents at once in one group.")


class Retry(Document):
    """What happens after a failed attempt. A disruption (drain, preemption) does not count."""

    limit: Annotated[int, Field(ge=0, le=10)] = Field(2, description="How often a failed node is tried again in a run.")
    backoff_seconds: Annotated[int, Field(ge=1, le=86_400)] = Field(
        60, description="Wait before the first retry; doubled for each further one, longer for slow causes (images)."
    )


class Rollout(Document):
    """How many nodes are measured at once, and what stops it."""

    max_concurrent: fields.IntOrPercent = Field(
        1, description="Most agents at once: a number, or a per cent of the eligible nodes (rounded down, at least 1)."
    )
    canary: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        None, description="So many nodes must succeed before any other starts; if one of them fails, the rollout stops."
    )
    max_failures: fields.IntOrPercent | None = Field(
        None, description="Stop when more nodes than this (or this per cent of the eligible ones) have failed in a run."
    )
    max_image_pulls: fields.IntOrPercent = Field(
        2,
        description="Most agents that pull their image at once, on nodes that neither list it nor have run it: a "
        "number, or a per cent of the eligible nodes.",
    )
    per_topology: tuple[TopologyLimit, ...] = Field(
        (),
        max_length=4,
        description="Limits by rack, NVLink domain, zone; agents of other profiles of the namespace count too.",
    )
    power_budget_watts: fields.Watts | None = Field(
        None,
        description="Most power that nodes under measurement may draw together, by the enforced limits of their GPUs "
        "(before the first report: the product's default); agents of other profiles of the namespace on matched nodes "
        "count too.",
    )
    ramp_seconds: Annotated[int, Field(ge=0, le=86_400)] = Field(
        0, description="Least time between two starts in one group of the first perTopology key, else in the profile."
    )
    pools: tuple[PoolLimit, ...] = Field((), max_length=64, description="Limits by pool.")
    retry: Retry = Field(Retry(), description="What happens after a failed attempt.")


class Toleration(Document):
    """A toleration of the agent pods, beside those for nvidia.com/gpu and kubernetes.io/arch that they always have."""

    RULES = (
        Rule(
            "self.operator != 'Exists' || !has(self.value)",
            "value must be left out when operator is Exists",
            lambda toleration: toleration.operator != "Exists" or toleration.value is None,
        ),
    )

    key: fields.LabelKey = Field(
        description="Taint key; required, since tolerating every taint would enter reserved racks."
    )
    operator: Literal["Equal", "Exists"] = Field("Equal", description="How value is compared.")
    value: LabelValue | None = Field(None, description="Taint value.")
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = Field(
        None, description="Taint effect; left out, all effects."
    )


class Resources(Document):
    """CPU, memory and local storage of one agent, beside the GPUs."""

    cpu: fields.Quantity = Field("4", description="CPU request.")
    memory: fields.Quantity = Field("32Gi", description="Memory request and limit.")
    ephemeral_storage: fields.Quantity = Field(
        "8Gi", description="Limit of local storage: /tmp with the caches of CUDA, Triton and Inductor, and the log."
    )


class PullSecret(Document):
    """Name of a Secret in the profile's namespace."""

    name: Name = Field(description="Secret name.")


class Agent(Document):
    """The agent pods. Image registries are limited by the operator's allow-list."""

    image: fields.Image | None = Field(None, description="Agent image. Default: the operator's.")
    gpus: Literal["All", "One"] = Field(
        "All", description="All: the node's GPUs compute at once, which shows the slowest; One: a quick look at one."
    )
    image_pull_secrets: tuple[PullSecret, ...] = Field((), max_length=8, description="Secrets to pull the image with.")
    tolerations: tuple[Toleration, ...] = Field((), max_length=32, description="Further tolerations.")
    resources: Resources = Field(Resources(), description="CPU, memory and local storage of an agent.")
    queue_name: Name | None = Field(
        None, description="Kueue LocalQueue in the profile's namespace; agents then start when Kueue lets them."
    )
    runtime_class_name: Name | None = Field(None, description="RuntimeClass of the agent pods, e.g. nvidia.")


class Thresholds(Document):
    """When a node counts as slow."""

    slow_node_percent: Annotated[int, Field(ge=1, le=90)] = Field(
        5, description="A node this much below its pool's median (and 4 robust deviations) is slow."
    )


class Idle(Document):
    """When a node counts as free, and how long an agent may wait for it."""

    required: bool = Field(True, description="Measure only nodes on which no pod holds GPUs.")
    pending_timeout_seconds: Annotated[int, Field(ge=30, le=86_400)] = Field(
        300,
        description="How long an agent's pod may wait to be scheduled, and its image may fail to be pulled, before the "
        "operator deletes its Job.",
    )
    start_timeout_seconds: Annotated[int, Field(ge=30, le=86_400)] = Field(
        1800,
        description="How long a scheduled agent may take to pull its image and start; until then that counts as no "
        "failure. The default is enough for 20 GB at 12 MB/s.",
    )
    queue_timeout_seconds: Annotated[int, Field(ge=60, le=604_800)] | None = Field(
        None,
        description="How long an agent may wait in its Kueue queue before the operator deletes its Job. Default: "
        "no limit.",
    )


class Schedule(Document):
    """When measurements begin and how old results may grow. Without a cron, they begin at once."""

    cron: Annotated[str, Field(min_length=9, max_length=128)] | None = Field(
        None, description="Five cron fields; each time that they name begins a new run of all nodes."
    )
    time_zone: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9_+/-]*$")] = Field(
        "UTC", description="IANA time zone of the cron, e.g. Europe/Berlin."
    )
    jitter_seconds: Annotated[int, Field(ge=0, le=86_400)] = Field(
        0, description="Begin up to this much later, by a share that is fixed for each profile."
    )
    max_age: fields.Duration | None = Field(None, description="A result older than this is measured again.")


class Retention(Document):
    """How long results stay."""

    history: Annotated[int, Field(ge=1, le=10)] = Field(3, description="How many runs a report remembers.")
    deleted_nodes: fields.Duration = Field(
        "24h", description="How long the report of a deleted node is kept (s, m, h, d)."
    )
    detail: Literal["Full", "None"] = Field(
        "Full", description="Full: each result has a ConfigMap. None: new ones get none, where etcd has no room."
    )


class SavedReference(Document):
    """A reference of this namespace, made by `kubectl precision reference create`."""

    name: Name = Field(description="Name of its ConfigMap.")
    sha256: fields.Sha256 = Field(description="Its SHA-256: another ConfigMap under its name gives no verdict.")


class MustDetect(Document):
    """Per cent that each check must find; the usual ones, from the reference's own spread, where left out."""

    reference: fields.Deficit | None = Field(None, description="Of a node against the reference.")
    node: fields.Deficit | None = Field(None, description="Of a GPU against its node's others.")
    change: fields.Deficit | None = Field(None, description="Of a GPU against its own first Pass.")


class Acceptance(Document):
    """Asks for a verdict on each node: may it take work? Of its GPUs' compute alone; an edit measures nothing again."""

    reference: SavedReference = Field(description="What nodes are compared with.")
    recipes: fields.Recipes = Field(
        (), max_length=len(RECIPE_NAMES), description="Recipes that must pass. Default: all of the reference."
    )
    must_detect_percent: MustDetect | None = Field(
        None, description="The deficits that must be found. Best left out: too small ones are refused (NotDetectable)."
    )
    valid_for: fields.Duration = Field("30d", description="How long after its last run a Pass holds.")


class ProfileSpec(Document):
    """What to measure, where, how many nodes at once."""

    RULES = (
        Rule(
            "!has(self.acceptance) || self.benchmarks.training.enabled",
            "acceptance judges training rates: enable benchmarks.training",
            lambda spec: spec.acceptance is None or spec.benchmarks.training.enabled,
        ),
        Rule(
            "!has(self.acceptance) || !has(self.acceptance.recipes) || !has(self.recipes) || size(self.recipes) == 0 "
            "|| self.acceptance.recipes.all(r, r in self.recipes || r in ['bf16', self.benchmarks.baseline])",
            "acceptance.recipes names a recipe that is not measured: add it to recipes",
            lambda spec: (
                spec.acceptance is None
                or not spec.recipes
                or set(spec.acceptance.recipes) <= {*spec.recipes, "bf16", spec.benchmarks.baseline}
            ),
        ),
        Rule(
            "!has(self.recipes) || size(self.recipes.filter(r, !(r in ['bf16', self.benchmarks.baseline]))) + "
            f"(has(self.mixtures) ? size(self.mixtures) : 0) <= {MOST_LISTED}",
            f"recipes and mixtures: {MOST_LISTED} at most beside bf16 and the baseline: list fewer, or make a second "
            "profile",
            lambda spec: (
                len({*spec.recipes} - {"bf16", spec.benchmarks.baseline}) + len(spec.mixtures) * bool(spec.recipes)
                <= MOST_LISTED
            ),
        ),
        Rule(
            "!has(self.mixtures) || size(self.mixtures) == 0 || (has(self.recipes) && size(self.recipes) > 0)",
            "mixtures are measured beside listed recipes: set recipes too",
            lambda spec: not spec.mixtures or bool(spec.recipes),
        ),
        Rule(
            f"self.benchmarks.baseline in {[*RECIPE_NAMES]} "
            "|| has(self.mixtures) && self.mixtures.exists(x, x.name == self.benchmarks.baseline)",
            NO_BASELINE,
            lambda spec: spec.benchmarks.baseline in named_of(spec.mixtures),
        ),
        Rule(
            "!has(self.mixtures) || size(self.mixtures) == 0 || self.benchmarks.scope == 'all'",
            NO_SCOPE,
            lambda spec: not spec.mixtures or spec.benchmarks.scope == "all",
        ),
        Rule(
            "!has(self.acceptance) || self.retention.detail == 'Full'",
            "acceptance judges full results: set retention.detail to Full",
            lambda spec: spec.acceptance is None or spec.retention.detail == "Full",
        ),
    )

    suspend: bool = Field(
        False, description="True: no new measurements start, nor those that Kueue holds; running ones finish."
    )
    target: Target = Field(Target(), description="Which nodes are measured.")
    pool_label: fields.LabelKey = Field(DEFAULT_POOL_LABEL, description="Node label whose value names the node's pool.")
    workload: Workload = Field(description="The model or the matrix shapes to measure.")
    recipes: fields.Recipes = Field(
        (),
        max_length=len(RECIPE_NAMES),
        description="Recipes to measure. Default: all but variants that the node's GPUs run natively. A risky one is "
        "called best or recommended only where it stands here. The baseline is always measured.",
    )
    mixtures: Mixtures = Field(
        (), description="Mixtures of recipes to measure too: each part of a layer in its own. At most 4."
    )
    benchmarks: Benchmarks = Field(Benchmarks(), description="What is measured, and how long.")
    rollout: Rollout = Field(Rollout(), description="How many nodes are measured at once.")
    idle: Idle = Field(Idle(), description="When a node counts as free.")
    schedule: Schedule = Field(Schedule(), description="When measurements begin.")
    rerun_on: fields.RerunOn = Field(
        ("DriverChange", "AgentChange", "HardwareChange", "SpecChange"),
        max_length=4,
        description="Changes after which a node is measured again. Old results stay until they are replaced.",
    )
    agent: Agent = Field(Agent(), description="The agent pods.")
    thresholds: Thresholds = Field(Thresholds(), description="When a node counts as slow.")
    retention: Retention = Field(Retention(), description="How long results stay.")
    acceptance: Acceptance | None = Field(None, description="Asks for a verdict on each node: may it take work?")


class Condition(StatusDocument):
    """A metav1.Condition."""

    type: Annotated[str, Field(max_length=316)] = Field(description="Type of the condition.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: Annotated[str, Field(min_length=1, max_length=128)] = Field(description="Why, in one CamelCase word.")
    message: Annotated[str, Field(max_length=4096)] = Field("", description="Why, in words, with the next step.")
    observed_generation: int | None = Field(None, ge=0, description="Generation of the spec that was judged.")
    last_transition_time: Annotated[str, Field(max_length=32)] = Field(
        description="When status changed.", json_schema_extra={"format": "date-time"}
    )


Time = Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]


class NodeCounts(StatusDocument):
    """How many nodes stand where. matched = eligible + skipped; eligible = all states but skipped."""

    matched: int = Field(0, ge=0, description="Nodes that the target matches.")
    eligible: int = Field(0, ge=0, description="Matched nodes that can be measured, now or later.")
    distinct: int | None = Field(
        None, ge=0, description="Eligible nodes that no profile before it in the namespace has; absent where all are."
    )
    skipped: int = Field(0, ge=0, description="Matched nodes that can't be measured as they are (MIG, sharing ...).")
    waiting: int = Field(0, ge=0, description="Nodes that will be measured when they are free (busy, cordoned ...).")
    queued: int = Field(0, ge=0, description="Nodes whose turn comes.")
    running: int = Field(0, ge=0, description="Nodes that are being measured.")
    succeeded: int = Field(0, ge=0, description="Nodes with a result of this run.")
    failed: int = Field(0, ge=0, description="Nodes whose measurement failed.")
    slow: int = Field(0, ge=0, description="Measured nodes far below their pool's median.")
    stale: int = Field(0, ge=0, description="Nodes whose newest result is out of date (another driver, spec ...).")
    fallback: int = Field(0, ge=0, description="Measured nodes on which a recipe did not really run.")
    quarantined: int = Field(0, ge=0, description="Nodes that failed run after run and wait for `rerun`.")
    throttled: int = Field(0, ge=0, description="Measured nodes that were throttled by heat or the power brake.")
    accepted: int = Field(0, ge=0, description="Nodes with verdict Pass, where the profile asks for one.")
    not_accepted: int = Field(0, ge=0, description="Nodes with verdict Fail.")
    simulated: int = Field(0, ge=0, description="Measured nodes whose result holds replayed or simulated figures.")


class ReasonCount(StatusDocument):
    """How many nodes wait, are skipped or failed for one reason."""

    reason: ShortText = Field(description="Reason.")
    count: int = Field(ge=1, description="Number of nodes.")
    example: Name = Field(description="One of the nodes.")
    message: Text = Field("", description="The example's reason in words.")


class NodeRefusal(StatusDocument):
    """That the cluster did not create an agent's Job or pod on a node."""

    node: Name = Field(description="The node that it was for.")
    stage: Literal["report", "ResourceClaimTemplate", "Job", "pod", "ResourceClaim"] = Field(
        description="What was not created."
    )
    reason: ShortText = Field(description="Reason.")
    message: Text = Field("", description="What the API server said.")
    times: int = Field(1, ge=1, description="Tries in a row.")
    last_try: Time = Field(description="When it was tried last.")
    next_try: Time = Field(description="When it is tried again.")


class NodeYield(StatusDocument):
    """That an agent was ended for a pod of higher priority, and what came of it."""

    node: Name = Field(description="The agent's node.")
    node_uid: ShortText = Field("", description="Its UID.", alias="nodeUID")
    job_uid: ShortText = Field(description="UID of the agent's Job.", alias="jobUID")
    pod: Text = Field(description="The pod, namespace/name; 'a pod of another namespace' where names are not shown.")
    pod_uid: ShortText = Field(description="Its UID.", alias="podUID")
    owner_uid: ShortText = Field(
        description="Digest of its namespace and its controller's UID, else its own.", alias="ownerUID"
    )
    priority: int = Field(0, description="Its priority.")
    at: Time = Field(description="When the agent was ended.")
    outcome: Literal["Waiting", "Helped", "NotHelped", "Taken", "Gone"] = Field(
        description="Waiting: the GPUs are kept for the pod; Helped: it, or another pod of its owner, was scheduled; "
        "NotHelped: it still waited after a minute, and no agent is ended for it for an hour; Taken: it still waited, "
        "and a pod of another owner got the GPUs; Gone: it was deleted, or runs on another node."
    )
    ended: Time | None = Field(None, description="When the outcome was known.")


class PoolStatus(StatusDocument):
    """Measured figures of one pool."""

    name: ShortText = Field(description="Value of the pool label.")
    nodes: int = Field(ge=0, description="Nodes with a result.")
    best_recipe: Recipe | None = Field(None, description="Recipe with the highest median rate.")
    best_recipe_by_energy: Recipe | None = Field(None, description="Recipe with the most tokens per joule.")
    last_layers_bf16: int | None = Field(None, ge=0, alias="lastLayersBF16", description="Its last layers in BF16.")
    baseline: Recipe | None = Field(None, description="Recipe that the speedup is over; left out, bf16.")
    step: ShortText | None = Field(None, description="What is special in its training step: attention, weights.")
    speedup: Decimal | None = Field(None, description="Median training speedup of the best recipe over the baseline.")
    teraflops_per_gpu: Decimal | None = Field(
        None, alias="teraflopsPerGPU", description="Median model TFLOP/s of one GPU in training with the best recipe."
    )
    tokens_per_second: Decimal | None = Field(None, description="Median tokens/s of a node with the best recipe.")
    tokens_per_joule_p10: Decimal | None = Field(None, description="10th percentile of tokens per joule, best recipe.")
    tokens_per_joule: Decimal | None = Field(None, description="Median tokens per joule (= tokens/s per W).")
    tokens_per_joule_p90: Decimal | None = Field(None, description="90th percentile of tokens per joule.")
    watts: Decimal | None = Field(None, description="Median draw of a node with the best recipe.")
    fallback_nodes: int = Field(0, ge=0, description="Nodes on which a recipe did not really run.")
    throttled_nodes: int = Field(
        0,
        ge=0,
        description="Nodes that were throttled by heat or the power brake; affected figures are not in medians.",
    )
    slow_nodes: tuple[Name, ...] = Field((), max_length=16, description="Slowest outliers, worst first.")
    simulated: bool = Field(False, description="True when a result behind these figures is replayed or simulated.")


class PeerStatus(StatusDocument):
    """Nodes that share product, GPUs, power limit, driver, software, timing and workload; their rates by one recipe."""

    key: tuple[ShortText, ...] = Field(min_length=7, max_length=7, description="What they share, in this order.")
    nodes: int = Field(ge=0, description="Nodes of the namespace with such a result, of whichever profile.")
    recipe: Recipe = Field(description="Recipe whose rates are compared.")
    last_layers_bf16: int | None = Field(None, ge=0, alias="lastLayersBF16", description="Its last layers in BF16.")
    rate: Decimal = Field(description="Median tokens/s of a node, at the pace of its slowest GPU.")
    spread: Decimal = Field(description="A node so far below is slow even if slowNodePercent is less.")
    count: int = Field(ge=0, description="Nodes that the median is of: throttled ones are not among them.")
    examples: tuple[Name, ...] = Field((), max_length=4, description="The first of these by name.")


class ProfileStatus(StatusDocument):
    """What has come of the profile; written by the operator alone."""

    observed_generation: int | None = Field(None, ge=0, description="Generation of the spec that this status is of.")
    phase: Literal["Pending", "Running", "Suspended", "Complete", "Degraded", "Invalid"] | None = Field(
        None, description="The conditions in one word, for people."
    )
    conditions: tuple[Condition, ...] = Field(
        (),
        max_length=8,
        description="Accepted, Progressing, Complete, Degraded; Succeeded or Failed once the run has ended.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    run: ShortText | None = Field(None, description="Identity of what is measured now.")
    nodes: NodeCounts | None = Field(None, description="Nodes by state.")
    eta: ShortText | None = Field(None, description="When the run will end, by measured durations, e.g. 14:35Z.")
    eta_time: Time | None = Field(None, description="The same moment as a time, for programs.")
    waits_for: ShortText | None = Field(None, description="What most nodes wait for, and how many do.")
    last_run: Time | None = Field(None, description="When the newest result came in.")
    next_run: Time | None = Field(None, description="When the schedule begins the next run.")
    progress: ShortText | None = Field(None, description="Finished of eligible nodes, e.g. 412/1024.")
    best: ShortText | None = Field(None, description="Best recipe and its median speedup in the largest pool.")
    teraflops_per_gpu: ShortText | None = Field(
        None, alias="teraflopsPerGPU", description="Its median TFLOP/s per GPU in training."
    )
    tokens_per_joule: ShortText | None = Field(None, description="Median tokens per joule of the largest pool.")
    data: ShortText | None = Field(
        None, description="measured, or a warning that figures are simulated, replayed, or of a CPU."
    )
    reasons: tuple[ReasonCount, ...] = Field((), max_length=32, description="Why nodes wait, are skipped or failed.")
    refusals: tuple[NodeRefusal, ...] = Field(
        (), max_length=32, description="What the cluster refused to create for agents, by node, until it is created."
    )
    yields: tuple[NodeYield, ...] = Field(
        (), max_length=32, description="Agents ended for pods of higher priority within the last hour, newest first."
    )
    pools: tuple[PoolStatus, ...] = Field((), max_length=64, description="Measured figures by pool.")
    peers: tuple[PeerStatus, ...] = Field((), max_length=64, description="What measured nodes are compared with.")
    peers_left_out: int = Field(0, ge=0, description="How many rows of peers are not listed.")
