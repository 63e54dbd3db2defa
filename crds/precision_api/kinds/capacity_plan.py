"""CapacityPlan: which pool, which precision and how many GPUs, for jobs with tokens, deadlines, power and money.

The figures of the answer come from reports that were measured; what a user adds here (prices, scaling, PUE) is named as
the user's own in the answer. Floats have no place in a custom resource: shares and prices are decimal strings, counts
and powers carry their unit (`15T`, `2.5MW`).
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from precision_api.facts.recipes import RECIPE_NAMES, PlainRecipe
from precision_api.facts.schema import Decimal, Document, Name, Rule, ShortText, StatusDocument, Text, patterned
from precision_api.kinds.fields import Duration, Recipes
from precision_api.kinds.profile import Condition, Time
from precision_api.models.workload import Workload

MAX_JOBS = 200
MAX_POOLS = 64
_ATOMIC: dict[str, Any] = {"x-kubernetes-list-type": "atomic"}

CountWithUnit = Annotated[
    str, patterned(r"^[0-9]{1,6}(\.[0-9]{1,6})?[KMBT]$", 16, "write a number and K, M, B or T, for example 15T")
]
"""Tokens or parameters: a number and its unit. Without one nobody knows whether 15 are tokens or trillions."""
Power = Annotated[
    str, patterned(r"^[0-9]{1,9}(\.[0-9]{1,6})?(W|kW|MW)$", 24, "write a number and W, kW or MW, for example 2.5MW")
]
Positive = Annotated[
    str, patterned(r"^[0-9]{1,12}(\.[0-9]{1,9})?$", 24, 'write a plain number in quotes, for example "2.5"')
]
Share = Annotated[
    str, patterned(r"^(0(\.[0-9]{1,9})?|1(\.0{1,9})?)$", 12, 'write a share from 0 to 1 in quotes, for example "0.95"')
]
Gpus = Annotated[int, Field(ge=1, le=1_000_000)]
GlobalBatch = Annotated[int, Field(ge=1, le=10_000_000)]
Label = Annotated[
    str, patterned(r"^[a-zA-Z0-9]([a-zA-Z0-9._-]{0,61}[a-zA-Z0-9])?$", 63, "write letters, digits, dots and dashes")
]
Objective = Literal["cost", "time", "energy"]
Basis = Literal["measured", "simulated", "replayed", "predicted", "declared"]
Doubt = Literal["stale", "unverified", "unhealthyLoss", "simulated", "replayed", "powerInvalid"]
"""Why a figure is refused unless somebody asks for it."""


class PlanFleet(Document):
    """Which measured figures the plan is made from."""

    namespaces: tuple[Name, ...] = Field(
        (), max_length=64, description="Namespaces whose reports are read. Default: the plan's own."
    )
    profiles: tuple[Name, ...] = Field((), max_length=64, description="Only these profiles' reports. Default: all.")
    max_age: Duration = Field("30d", description="A result older than this is stale.")
    allow: tuple[Doubt, ...] = Field(
        (),
        max_length=6,
        description="Figures to use although they are stale, unverified, simulated, replayed, of a recipe whose loss "
        "runs were not healthy (unhealthyLoss), or their power is not valid (the enforced limit then replaces the "
        "draw). The answer marks figures that are used so.",
    )
    placement: Literal["random", "fastest"] = Field(
        "random",
        description="random: jobs get any nodes of a pool; fastest: you place each job on the pool's fastest nodes.",
    )


_PLUS_MINUS = (
    'How far off it may be, as a share of it, either way, nine times in ten, for example "0.03". Default: {}; the '
    "answer says so."
)


class ScalingPoint(Document):
    """How much of the sum of its nodes' rates a job keeps, at one size."""

    gpus: Gpus = Field(description="GPUs of the job.")
    recipe: PlainRecipe | None = Field(
        None, description="Recipe that it holds for. Default: all that have no points of their own."
    )
    efficiency: Share = Field(description='Share that is kept at this size, for example "0.92".')
    plus_minus: Share | None = Field(None, description=_PLUS_MINUS.format("0.05"))


class JobRate(Document):
    """The measured rate of a whole job, communication included."""

    workload: Workload = Field(description="What was trained.")
    recipe: PlainRecipe = Field(description="Recipe that it was trained with.")
    gpus: Gpus = Field(description="GPUs of the job.")
    tokens_per_second_per_gpu: Positive = Field(
        alias="tokensPerSecondPerGPU", description="Tokens per second of one GPU of the job."
    )
    plus_minus: Share | None = Field(
        None, description=_PLUS_MINUS.format("how far published rates of such models lie apart between releases")
    )
    releases_apart: Annotated[int, Field(ge=1, le=99)] = Field(
        1, description="Releases of the training software between that run and the job."
    )
    global_batch: GlobalBatch | None = Field(
        None, description="Sequences of one optimizer step of that run. Default: the job's own; the answer says so."
    )
    watts_per_gpu: Positive | None = Field(None, alias="wattsPerGPU", description="Mean draw of one GPU, if measured.")
    source: Annotated[str, Field(min_length=1, max_length=253)] = Field(description="Who measured it, and where.")


class PlanPool(Document):
    """What the plan can't read from reports: prices, scaling, and pools that nobody profiled."""

    name: ShortText = Field(description="Pool as reports name it, or the name of a pool that is described here alone.")
    product: ShortText | None = Field(None, description="GPU product of a pool that has no reports.")
    nodes: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="Nodes to plan with. Default: those with a usable result. Of others, some may be slow."
    )
    gpus_per_node: Annotated[int, Field(ge=1, le=64)] | None = Field(
        None, alias="gpusPerNode", description="GPUs of a node, for a pool that has no reports."
    )
    limit_watts_per_gpu: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, alias="limitWattsPerGPU", description="Enforced limit of a GPU where reports name none."
    )
    memory_gib_per_gpu: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None,
        alias="memoryGiBPerGPU",
        description="Memory of a GPU in GiB. Default: the product's, as its vendor prints it.",
    )
    limit_scope: Literal["gpu", "module"] = Field(
        "gpu",
        description="What the enforced limit is of: the GPU, or the module around it. Power is reserved by the limit "
        "and its overhead, and never less than what was measured.",
    )
    idle_watts_per_gpu: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None,
        alias="idleWattsPerGPU",
        description="Draw of a GPU that no job uses, in the scope of the limit. Default: 0; the answer says so.",
    )
    power_scope: Literal["gpu", "module"] = Field(
        "gpu", description="What watts are of in a pool that has no reports: the GPU, or the module around it."
    )
    block_gpus: Gpus | None = Field(
        None, alias="blockGPUs", description="Jobs get whole blocks of so many GPUs, e.g. 72 (NVLink domain)."
    )
    scaling: tuple[ScalingPoint, ...] = Field(
        (),
        max_length=64,
        description="Efficiency by job size, and by recipe where given; Default: by published rates of "
        "jobs like it; sizes of which none tells are not offered.",
    )
    job_rates: tuple[JobRate, ...] = Field(
        (), max_length=16, description="Measured rates of whole jobs; they come before rates of nodes."
    )
    goodput: Share | None = Field(None, description="Share of time that jobs make progress. Default: the plan's.")
    goodput_plus_minus: Share | None = Field(None, description=_PLUS_MINUS.format("0.05"))
    dollars_per_gpu_hour: Positive | None = Field(
        None, alias="dollarsPerGPUHour", description="Price of a GPU hour. Left out: no cost is given."
    )
    price_includes_power: bool = Field(False, description="Whether that price pays for electricity too.")
    committed_gpu_hours: Positive | None = Field(
        None, alias="committedGPUHours", description="GPU hours that are paid for already: they cost nothing more."
    )
    power_budget: Power | None = Field(None, description="Most power of this pool's jobs at any time.")
    spare_nodes: Annotated[int, Field(ge=0, le=100_000)] | None = Field(
        None,
        description="Nodes that no job gets, for those in repair. Default: the fewest with which a job on all others "
        "waits for a node in less than one run of ten (30 days, the middle rate); none where goodput is given.",
    )
    repair_days: Positive = Field("3", description="Days that a node is in repair.")


class PowerOverhead(Document):
    """Power of the rest of a node (CPUs, memory, network, fans) as a factor on what was read."""

    gpu: Positive | None = Field(None, description='On watts of GPUs alone, for example "1.35".')
    module: Positive | None = Field(None, description='On watts of modules (GPUs and Grace CPU), for example "1.15".')


class PlanPower(Document):
    """What electricity there is and what it costs."""

    pue: Positive | None = Field(None, description='Facility power per IT power, for example "1.25".')
    overhead: PowerOverhead = Field(PowerOverhead(), description="Power of the rest of a node, by what was measured.")
    budget: Power | None = Field(None, description="Most facility power of all jobs at any time, by enforced limits.")
    dollars_per_kilowatt_hour: Positive | None = Field(None, description="Price of electricity.")


_RATE = r"^([01](\.[0-9]{1,12})?|[1-9](\.[0-9]{1,9})?e-[1-9])$"
_PER_GPU_HOUR = 'write the interruptions of a GPU hour, in quotes, for example "4e-5" or "0.00004"'


class PlanFailures(Document):
    """What interrupts jobs. A goodput that is given replaces it."""

    interruptions_per_gpu_hour: Annotated[str, patterned(_RATE, 16, _PER_GPU_HOUR)] | None = Field(
        None,
        alias="interruptionsPerGPUHour",
        description='Of one GPU, for example "0.00002". Default: 4e-5, nine times in ten 1.2e-5 to 1.3e-4.',
    )
    checkpoint_stall_seconds: Positive = Field("10", description="Seconds that training waits for a checkpoint.")
    restart_minutes: Positive = Field("15", description="Minutes from an interruption to training again.")
    checkpoint_minutes: Positive | None = Field(
        None, description="Minutes of training between two checkpoints. Default: the best for the job's size."
    )


class PlanBudget(Document):
    """Most that all jobs together may take."""

    dollars: Positive | None = Field(None, description="Most money.")
    gpu_hours: Positive | None = Field(None, alias="gpuHours", description="Most GPU hours.")
    megawatt_hours: Positive | None = Field(None, description="Most energy of the facility.")


class RunningJob(Document):
    """A job that runs already: it keeps its pool, its recipe and its GPUs."""

    pool: ShortText = Field(description="Pool that it runs in.")
    recipe: PlainRecipe = Field(description="Recipe that it runs with.")
    gpus: Gpus = Field(description="GPUs that it runs on.")
    tokens_done: CountWithUnit | None = Field(None, description="Tokens that it has trained on, e.g. 3.2T.")
    started_at: Time | None = Field(
        None, description="When it was started; the answer then compares the planned days with the actual ones."
    )


class PlanJob(Document):
    """One training job."""

    RULES = (
        Rule(
            "has(self.workload) != has(self.parameters)",
            "give exactly one of workload and parameters",
            lambda job: (job.workload is None) != (job.parameters is None),
        ),
        Rule(
            "!has(self.deadline) || !has(self.deadlineDays)",
            "give deadline or deadlineDays, not both",
            lambda job: job.deadline is None or job.deadline_days is None,
        ),
        Rule(
            "!has(self.globalBatch) || !has(self.globalBatchMax) || self.globalBatch <= self.globalBatchMax",
            "globalBatch must be at most globalBatchMax",
            lambda job: not (job.global_batch and job.global_batch_max) or job.global_batch <= job.global_batch_max,
        ),
        Rule(
            "!has(self.minGPUs) || !has(self.maxGPUs) || self.minGPUs <= self.maxGPUs",
            "minGPUs must be at most maxGPUs",
            lambda job: not (job.min_gpus and job.max_gpus) or job.min_gpus <= job.max_gpus,
        ),
    )

    name: Label = Field(description="Name of the job.")
    workload: Workload | None = Field(None, description="Model and sequence length.")
    parameters: CountWithUnit | None = Field(
        None, description="Active parameters where the model is not known, e.g. 70B: 6 FLOPs each, attention left out."
    )
    tokens: CountWithUnit = Field(description="Tokens to train on, e.g. 15T.")
    deadline: Time | None = Field(None, description="When it must have ended.")
    deadline_days: Positive | None = Field(None, description="Days from the plan's start in which it must have ended.")
    recipes: Recipes = Field(
        (),
        max_length=len(RECIPE_NAMES),
        description="Recipes that it may use. Default: all but those with a known risk that no profile lists.",
    )
    deny_recipes: Recipes = Field((), max_length=len(RECIPE_NAMES), description="Recipes that it must not use.")
    pools: tuple[ShortText, ...] = Field((), max_length=64, description="Pools that it may use. Default: all.")
    min_gpus: Gpus | None = Field(None, alias="minGPUs", description="Fewest GPUs.")
    max_gpus: Gpus | None = Field(None, alias="maxGPUs", description="Most GPUs.")
    block_gpus: Gpus | None = Field(None, alias="blockGPUs", description="Whole blocks of so many GPUs.")
    global_batch: GlobalBatch | None = Field(
        None,
        description="Sequences of one optimizer step: each copy of the model needs at least one. Default: as many for "
        "each GPU as the smallest published job of such a model has; the answer says so.",
    )
    global_batch_max: GlobalBatch | None = Field(
        None, description="Up to which the global batch may grow with the job's GPUs. Default: globalBatch."
    )
    gpus_per_replica: Gpus | None = Field(
        None,
        alias="gpusPerReplica",
        description="GPUs that hold one copy of the model (tensor x pipeline x context). Default: as memory allows.",
    )
    memory_check: Literal["Enforce", "Ignore"] = Field(
        "Enforce",
        description="Ignore: offer sizes that can't hold the model, or that the global batch can't feed; the answer "
        "says so.",
    )
    priority: Annotated[int, Field(ge=-1000, le=1000)] = Field(0, description="Higher goes first when jobs queue.")
    after: tuple[Label, ...] = Field((), max_length=16, description="Jobs that must have ended before it starts.")
    not_before: Time | None = Field(None, description="Earliest start. Default: the plan's start.")
    running: RunningJob | None = Field(None, description="Where it runs already; left out: it is still to be started.")
    goodput: Share | None = Field(None, description="Share of time that it makes progress. Default: the pool's.")
    goodput_plus_minus: Share | None = Field(None, description=_PLUS_MINUS.format("0.05"))


class Price(Document):
    """Another price of one pool."""

    pool: ShortText = Field(description="Pool.")
    dollars_per_gpu_hour: Positive = Field(alias="dollarsPerGPUHour", description="Its price of a GPU hour.")


class MoreNodes(Document):
    """Nodes that a pool is given."""

    pool: ShortText = Field(description="Pool, or its GPU product.")
    nodes: Annotated[int, Field(ge=1, le=100_000)] = Field(description="How many more, like those that it has.")


class MorePool(Document):
    """A pool of nodes like those of a product that the fleet has, or that `pools` describes."""

    product: ShortText = Field(description="GPU product, or a pool.")
    nodes: Annotated[int, Field(ge=1, le=100_000)] = Field(description="Its nodes.")
    dollars_per_gpu_hour: Positive | None = Field(
        None, alias="dollarsPerGPUHour", description="Price of a GPU hour. Default: as of that product."
    )


class LostRack(Document):
    """A rack (or NVLink domain) that is lost."""

    pool: ShortText = Field(description="Pool, or its GPU product.")
    rack: ShortText | None = Field(None, description="Its name. Default: the largest one of the pool.")


class WhatIf(Document):
    """One change of the plan's inputs; the answer is shown as the difference to the plan without it."""

    name: Label = Field(description="Name of the question.")
    drain_slow_nodes: bool = Field(False, description="Take the slow and throttled nodes out of their pools.")
    power_percent: Annotated[int, Field(ge=-99, le=1000)] | None = Field(
        None, description="Change the power budget by so many per cent (without one: the plan's own peak)."
    )
    allow_recipes: Recipes = Field(
        (), max_length=len(RECIPE_NAMES), description="Recipes that all jobs may use besides."
    )
    deny_recipes: Recipes = Field((), max_length=len(RECIPE_NAMES), description="Recipes that no job may use.")
    add_nodes: MoreNodes | None = Field(None, description="Give a pool more nodes.")
    add_pool: MorePool | None = Field(None, description="Give the plan a pool more.")
    lose_rack: LostRack | None = Field(None, description="Take one rack away.")
    prices: tuple[Price, ...] = Field((), max_length=64, description="Other prices.")


class Solver(Document):
    """How long and how well to solve."""

    time_limit_seconds: Annotated[int, Field(ge=1, le=600)] = Field(10, description="Longest time for one plan.")
    gap_percent: Positive = Field("0.5", description="How far from the optimum the answer may be, in per cent.")


class PlanSpec(Document):
    """Jobs, and what they may use."""

    fleet: PlanFleet = Field(PlanFleet(), description="Which measured figures to use.")
    start: Time | None = Field(
        None,
        description="When jobs start, ten years from now at most. Default: when the plan was created, or the current "
        "day at 0:00 UTC where that is later; deadlineDays moves with it.",
    )
    objective: Annotated[tuple[Objective, ...], Field(min_length=1)] | None = Field(
        None,
        max_length=3,
        description="What to make small, in order: cost, time (end of the last job), energy; each within the gap. "
        "Default: cost where every job has a deadline and every pool a price, else time.",
    )
    goodput: Share | None = Field(
        None,
        description="Share of time that jobs make progress. Default: by failures and the job's size.",
    )
    goodput_plus_minus: Share | None = Field(None, description=_PLUS_MINUS.format("0.05"))
    scaling: tuple[ScalingPoint, ...] = Field(
        (), max_length=64, description="Efficiency by job size in all pools that have none of their own."
    )
    failures: PlanFailures = Field(PlanFailures(), description="What interrupts jobs, where no goodput is given.")
    pools: tuple[PlanPool, ...] = Field((), max_length=MAX_POOLS, description="Prices, scaling and further pools.")
    power: PlanPower = Field(PlanPower(), description="Electricity.")
    budget: PlanBudget = Field(PlanBudget(), description="Most that all jobs together may take.")
    jobs: Annotated[tuple[PlanJob, ...], Field(min_length=1, max_length=MAX_JOBS)] = Field(description="Jobs.")
    what_ifs: tuple[WhatIf, ...] | None = Field(
        None, max_length=16, description="Questions. Default: a standard set; an empty list: none."
    )
    solver: Solver = Field(Solver(), description="How long and how well to solve.")


class PlanDays(StatusDocument):
    """How long, at the two ends of the band and in the middle."""

    low: Decimal = Field(description="Days if all goes well.")
    mid: Decimal = Field(description="Days expected.")
    high: Decimal = Field(description="Days if it goes badly: nine in ten lie between low and high.")


class JobPlan(StatusDocument):
    """What the plan gives to one job."""

    name: ShortText = Field(description="Job.")
    pool: ShortText = Field(description="Pool.")
    recipe: PlainRecipe = Field(description="Recipe.")
    last_layers_bf16: int | None = Field(None, ge=0, alias="lastLayersBF16", description="Its last layers in BF16.")
    step: ShortText | None = Field(None, description="What is special in its training step: attention, weights.")
    gpus: int = Field(ge=1, description="GPUs.")
    start: Time = Field(description="When it starts.")
    end: Time = Field(description="When it ends, by the middle of the band.")
    days: PlanDays = Field(description="How long it takes.")
    teraflops_per_gpu: Decimal | None = Field(
        None, alias="teraflopsPerGPU", description="Model TFLOP/s of one GPU at that rate."
    )
    tokens_per_second: Decimal = Field(description="Rate, all factors in.")
    straggler: Decimal = Field(description="What waiting for the slowest node leaves of the median rate.")
    megawatts: Decimal | None = Field(None, description="Facility power by enforced limits.")
    megawatt_hours: Decimal | None = Field(None, description="Energy of the facility.")
    dollars: Decimal | None = Field(None, description="Cost.")
    dollars_per_million_tokens: Decimal | None = Field(None, description="Cost per million tokens.")
    tokens_per_joule: Decimal | None = Field(None, description="Tokens per joule of facility energy.")
    basis: Basis = Field(description="Where the rate comes from.")
    upper_bound: bool = Field(description="True: communication is not in the rate; the job will take longer.")
    deadline: Literal["promised", "notPromised", "none"] = Field(description="promised: it is kept nine times in ten.")
    probability: Decimal | None = Field(
        None, description="Chance from 0 to 1 that the deadline is kept; absent: no deadline, or it is not known."
    )
    slack_percent: int | None = Field(None, ge=0, description="Per cent more tokens with which all limits still hold.")
    binding: ShortText | None = Field(None, description="What keeps the job from being better.")
    source: Text = Field(description="What the rate was taken from.")


class PoolUse(StatusDocument):
    """What the plan takes of one pool."""

    name: ShortText = Field(description="Pool.")
    gpus: int = Field(ge=0, description="GPUs that there are.")
    peak_gpus: int = Field(ge=0, alias="peakGPUs", description="Most GPUs in use at one time.")
    gpu_hours: Decimal = Field(alias="gpuHours", description="GPU hours of all jobs.")
    megawatts: Decimal | None = Field(None, description="Most power at one time.")
    slow_nodes: int = Field(0, ge=0, description="Slow and throttled nodes.")
    data: ShortText = Field(description="What its figures are: measured, simulated ..., and how many nodes are so.")
    provenance: Text = Field(description="Profiles, nodes, age, verdicts on the precision.")


class WhatIfAnswer(StatusDocument):
    """What a change would do."""

    name: ShortText = Field(description="Question.")
    answer: Text = Field(description="The difference in words.")
    dollars: Decimal | None = Field(None, description="More (or, negative, less) cost.")
    days: Decimal | None = Field(None, description="More days until the last job ends.")
    megawatt_hours: Decimal | None = Field(None, description="More energy.")
    worth_least: Decimal | None = Field(
        None, description="What added nodes take off the best plan's first objective (totals.objective) at least."
    )
    worth_most: Decimal | None = Field(None, description="The same at most; both are proved.")
    feasible: bool | None = Field(
        None, description="Whether there is a plan at all then; absent: not known, the time limit ended the search."
    )


class PlanTotals(StatusDocument):
    """All jobs together."""

    days: Decimal | None = Field(None, description="Until the last job ends, by the middle of the bands.")
    dollars: Decimal | None = Field(None, description="Cost, beyond the GPU hours that are paid for already.")
    committed_dollars: Decimal | None = Field(
        None, description="Price of all GPU hours that are paid for already, used or not; absent: there are none."
    )
    megawatt_hours: Decimal | None = Field(None, description="Energy.")
    peak_megawatts: Decimal | None = Field(None, description="Most power at one time.")
    gpu_hours: Decimal | None = Field(None, alias="gpuHours", description="GPU hours.")
    objective: Objective | None = Field(None, description="What the plan makes small first.")
    gap_percent: Decimal | None = Field(None, description="How far from the least possible of it the plan may be.")
    gap_reached: bool | None = Field(None, description="Whether that is within solver.gapPercent.")
    joint_probability: Decimal | None = Field(
        None, description="Chance from 0 to 1 that all deadlines are kept; absent: there is none, or it is not known."
    )
    instead: Text | None = Field(None, description="The best plan with another pool or recipe for the largest job.")


class PlanStatus(StatusDocument):
    """The answer; written by the operator alone."""

    observed_generation: int | None = Field(None, ge=0, description="Generation of the spec that was answered.")
    phase: Literal["Solved", "Infeasible", "Refused", "TimedOut", "NotFound"] | None = Field(
        None,
        description="The answer in one word. Infeasible: it is proved that limits clash. TimedOut, NotFound: whether "
        "there is a plan is not known.",
    )
    conditions: tuple[Condition, ...] = Field(
        (),
        max_length=8,
        description="Accepted, Solved, DeadlinesPromised.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    inputs: ShortText | None = Field(None, description="Hash of what the answer was made from.")
    solved_at: Time | None = Field(None, description="When it was solved.")
    recommendation: Text | None = Field(None, description="The answer in one sentence.")
    totals: PlanTotals | None = Field(None, description="All jobs together.")
    jobs: tuple[JobPlan, ...] = Field((), max_length=MAX_JOBS, description="By job.", json_schema_extra=_ATOMIC)
    pools: tuple[PoolUse, ...] = Field((), max_length=MAX_POOLS, description="By pool.", json_schema_extra=_ATOMIC)
    what_ifs: tuple[WhatIfAnswer, ...] = Field(
        (), max_length=16, description="Answers to the questions.", json_schema_extra=_ATOMIC
    )
    problems: tuple[Text, ...] = Field(
        (), max_length=32, description="Why there is no plan: field and remedy.", json_schema_extra=_ATOMIC
    )
    notes: tuple[Text, ...] = Field(
        (), max_length=32, description="What was assumed or left out.", json_schema_extra=_ATOMIC
    )
    summary: ShortText | None = Field(None, description="Jobs placed of all, for kubectl's columns.")
    days: ShortText | None = Field(None, description="Time until the last job ends, for kubectl's columns.")
    power: ShortText | None = Field(None, description="Most power at one time, for kubectl's columns.")
    cost: ShortText | None = Field(None, description="Cost, for kubectl's columns.")
    deadlines: ShortText | None = Field(None, description="Deadlines promised of all, for kubectl's columns.")
    data: ShortText | None = Field(None, description="measured, or a warning, for kubectl's columns.")
