"""Loss runs after all timed windows: of every recipe, one seed after the other, as long as there is time."""

from collections.abc import Callable, Sequence

from precision_agent.cases import Variant
from precision_agent.method.learning import loss_of, loss_run
from precision_agent.method.loss import Source, source
from precision_agent.protocol import LossPlan, LossTrack
from precision_agent.results.train import Measured
from precision_agent.sampling.devices import Call, Devices, Stop
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import Failure, Loss, LossRun

LOSS_SECONDS = 120.0
"""What a loss run is expected to take at most; a hung one is killed at three times that."""
Tracks = Sequence[LossTrack | Failure]
"""Of one recipe, by seed."""


def losses_of(
    devices: Devices,
    request: MeasurementRequest,
    run: Measured,
    variants: Sequence[Variant],
    stop: Stop,
    report_progress: Callable[[str, float], None],
) -> dict[str, Loss]:
    """By label; a failed seed fails its recipe's verdict with its reason. A stop keeps the seeds that all have run."""
    model = run.workload.model
    if request.loss is None or stop():
        return {}
    if model is None or not model.vocab_size:
        failure = Failure(reason="no_vocabulary", message="a loss needs a model with a vocabulary")
        return {variant.label: Loss(failure=failure) for variant in variants}
    seeds = [request.timing.seed + number for number in range(request.loss.seeds)]
    tracks: dict[str, list[LossTrack | Failure]] = {variant.label: [] for variant in variants}
    for place, seed in enumerate(seeds):
        if place and stop():
            break
        report_progress("loss", place / len(seeds))
        plan = LossPlan(request.loss.steps, seed, request.loss.learning_rate_factor)
        answers = devices.spread([Call("loss_run", (variant, plan), LOSS_SECONDS, variant) for variant in variants])
        for variant, answer in zip(variants, answers, strict=True):
            tracks[variant.label].append(answer)
    report_progress("loss", 1.0)
    baseline = next((v.label for v in variants if v == run.cases.baseline), "")
    vocab_size, chain = model.vocab_size, source(model.vocab_size, seeds[0])
    runs = {label: _runs(by_seed, seeds, chain, vocab_size) for label, by_seed in tracks.items()}
    base_runs = runs.get(baseline, ())
    others = () if isinstance(base_runs, Failure) else base_runs
    return {
        label: Loss(failure=recipe_runs, entropy=chain.entropy)
        if isinstance(recipe_runs, Failure)
        else loss_of(recipe_runs, chain, vocab_size, () if label == baseline else others)
        for label, recipe_runs in runs.items()
    }


def _runs(tracks: Tracks, seeds: Sequence[int], chain: Source, vocab_size: int) -> list[LossRun] | Failure:
    failed = next((track for track in tracks if isinstance(track, Failure)), None)
    if failed:
        return failed
    return [
        loss_run(seed, chain, vocab_size, _rounded(track.loss), _rounded(track.gradient_norm))
        for seed, track in zip(seeds, tracks, strict=False)
        if isinstance(track, LossTrack)
    ]


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    """To five digits: a thousand steps of three seeds and seven recipes must fit into the log."""
    return tuple(float(f"{value:.5g}") for value in values)
