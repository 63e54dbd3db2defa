"""The options of `precision-agent run`, each with its help: the command itself only lists them."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from precision_agent.backends.replay_tables import FAULTS
from precision_agent.run.open import BACKENDS
from precision_api.facts.names import REQUEST_ENV


class Form(StrEnum):
    """How a command prints its answer."""

    table = "table"
    json = "json"


class Partial(StrEnum):
    """What a check does in a container with only some of the node's GPUs: nothing is judged there."""

    refuse = "refuse"
    skip = "skip"


class Way(StrEnum):
    agent = "agent"
    nvidia = "nvidia"


Request = Annotated[str, typer.Option(help=f"File with the request, or 'env' for ${REQUEST_ENV}.")]
BackendOption = Annotated[str, typer.Option(help=f"What takes the samples: {', '.join(BACKENDS)}.")]
DeviceOption = Annotated[str, typer.Option(help="auto, cuda or cpu (a trial; never a GPU's figure).")]
Output = Annotated[Path | None, typer.Option(help="Also write the full result to this file, as JSON.")]
LinesOption = Annotated[bool, typer.Option(help="End stdout with the PPR1 lines of the full result.")]
Plan = Annotated[bool, typer.Option("--plan", help="Only say how long each phase takes.")]
Product = Annotated[str | None, typer.Option(help="With --plan or a replay: of such GPUs, like GB200.")]
Gpus = Annotated[int | None, typer.Option(min=1, max=16, help="With --plan or a replay: of so many GPUs.")]
Method = Annotated[Way, typer.Option(help="nvidia repeats benchmark_gemm.py, to compare with.")]
RepeatsOption = Annotated[int, typer.Option(min=1, max=100, help="With --method nvidia: whole runs.")]
Gpu = Annotated[str | None, typer.Option(help="UUID of the one GPU to measure; left out, all.")]
TraceOption = Annotated[Path | None, typer.Option(help="Folder for traces of the profiled steps.")]
FormOption = Annotated[Form, typer.Option("--form", "-o", help="With --local or --plan: table or json.")]
Here = Annotated[bool, typer.Option("--local", help="Measure this box as the options below say.")]
Preset = Annotated[str | None, typer.Option(help="A model by name, for example llama3-8b.")]
HfConfig = Annotated[Path | None, typer.Option(help="A Hugging Face config.json.")]
Shape = Annotated[list[str] | None, typer.Option(help="A forward GEMM as MxKxN; may be repeated.")]
Name = Annotated[str | None, typer.Option(help="What the workload is called in the result.")]
MicroBatchSize = Annotated[int | None, typer.Option(help="Sequences in one micro batch.")]
SequenceLength = Annotated[int | None, typer.Option(help="Tokens in a sequence.")]
TensorParallel = Annotated[int | None, typer.Option(help="GPUs that share each layer's matrices.")]
ExpertParallel = Annotated[int | None, typer.Option(help="GPUs that a layer's experts are spread over.")]
GradientAccumulation = Annotated[int | None, typer.Option(help="Micro batches in a step; default 8.")]
OptimizerShards = Annotated[int | None, typer.Option(help="Data-parallel GPUs that share the optimizer.")]
Recompute = Annotated[str | None, typer.Option(help="None, or Full: activations are computed again.")]
Recipe = Annotated[
    list[str] | None, typer.Option(help="Recipes; left out, what the GPU runs natively, without known risk.")
]
Baseline = Annotated[str, typer.Option(help="Recipe or mixture that speedups are relative to.")]
Scope = Annotated[str, typer.Option(help="all, or mlp: attention's projections stay in BF16.")]
LastLayersBF16 = Annotated[
    int | None, typer.Option(help="Last layers that stay in BF16 with NVFP4; computed. Left out, 15 % of them.")
]
GemmOption = Annotated[bool, typer.Option(help="Measure the GEMMs, not training alone.")]
Mode = Annotated[list[str] | None, typer.Option(help="Modes of the GEMMs: autocast, prequantized; left out, both.")]
Timing = Annotated[str, typer.Option(help="quick or standard.")]
SegmentSeconds = Annotated[float | None, typer.Option(help="Of one recipe's turn; left out, the timing's.")]
Training = Annotated[bool, typer.Option(help="Measure training, not the GEMMs alone.")]
Mixture = Annotated[
    list[str] | None,
    typer.Option(help="NAME:mlp=RECIPE,attention=RECIPE,...: a recipe for each part of a layer; may be repeated."),
]
AttentionCore = Annotated[
    str | None, typer.Option(help="FP8 recipe of attention's core: fp8_delayed, fp8_current or mxfp8; left out, BF16.")
]
PrimaryWeights = Annotated[str, typer.Option(help="bf16, or recipe: layers' weights are held quantised alone.")]
WeightGradients = Annotated[
    str | None, typer.Option(help="fused (in FP32, by the GEMM) or separate (by autograd); left out, fused.")
]
MayHalveMicroBatch = Annotated[
    bool, typer.Option("--may-halve-micro-batch", help="Out of memory halves the micro batch for all recipes.")
]
Loss = Annotated[
    bool | None, typer.Option("--loss/--no-loss", help="Short loss runs; left out, with --timing standard.")
]
LossSteps = Annotated[int | None, typer.Option(help="Steps of a loss run, 10 to 1000; left out, 50.")]
LossSeeds = Annotated[int | None, typer.Option(help="Loss runs of each recipe, each with its own seed: 1 to 3.")]
ReplayScale = Annotated[float, typer.Option(help="Replayed node's speed; 0.8 is 20 % slow.")]
ReplaySeed = Annotated[int, typer.Option(help="Seed of the replayed noise.")]
ReplayPace = Annotated[float, typer.Option(help="Seconds to wait for each replayed second: 0 to 1.", min=0, max=1)]
ReplayFault = Annotated[str | None, typer.Option(help=f"One of {', '.join(FAULTS)}.")]
