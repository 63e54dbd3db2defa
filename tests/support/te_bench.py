"""A backend of the agent on a made-up GPU, for tests of all of its parts."""

from typing import Any

from precision_agent import protocol
from precision_agent.backends.transformer_engine import TransformerEngine
from precision_agent.cases import GemmCase, TrainingCase, Variant, cases_of
from precision_api.exchange.request import MeasurementRequest
from precision_api.exchange.result import Failure
from precision_api.models.workload import resolve
from tests.support.te_fake import fakes
from tests.support.te_prober import FakeProber

HIDDEN, VOCABULARY = 32, 128
MODEL = {
    "hiddenSize": HIDDEN, "intermediateSize": 2 * HIDDEN, "numAttentionHeads": 2, "numHiddenLayers": 2,
    "vocabSize": VOCABULARY, "gatedMLP": True,
}  # fmt: skip
DEEP = {"model": MODEL | {"numHiddenLayers": 8}, "gradientAccumulation": 4}
"""A workload of which four layers are trained; all others are as shallow as their test lets them be."""
RECIPES = ("bf16", "fp8_delayed", "fp8_current", "nvfp4")


def request(**fields: Any) -> MeasurementRequest:
    workload = {"name": "small", "model": MODEL, "microBatchSize": 1, "sequenceLength": 32, "gradientAccumulation": 2}
    workload |= fields.pop("workload", {})
    base = {
        "namespace": "n", "profile": "p", "run": "r", "attempt": 1, "deadline_seconds": 600, "recipes": RECIPES,
        "node": {"name": "node", "uid": "u", "product": "B200", "gpus": 1}, "workload": workload,
    }  # fmt: skip
    return MeasurementRequest.model_validate(base | fields)


class Bench:
    """A backend on a made-up GPU."""

    def __init__(self, tag: str = "v2.20", asked: MeasurementRequest | None = None, **engine: Any) -> None:
        self.request = asked or request()
        self.world, self.api, self.engine = fakes(tag, **engine)
        self.prober = FakeProber()
        self.backend = TransformerEngine(self.request, "cuda", api=self.api, engine=self.engine, prober=self.prober)
        self.cases = cases_of(self.request, resolve(self.request.workload))

    def variant(self, label: str) -> Variant:
        return next(variant for variant in self.cases.variants if variant.label == label)

    def gemm(self, name: str, pass_: str, mode: str = "autocast") -> GemmCase:
        wanted = (name, pass_, mode)
        return next(case for case in self.cases.gemms if (case.name, case.pass_, case.mode) == wanted)

    @property
    def training(self) -> TrainingCase:
        assert self.cases.training
        return self.cases.training


def sample(answer: protocol.Sample | Failure) -> protocol.Sample:
    assert isinstance(answer, protocol.Sample), answer
    return answer


def us(seconds: float) -> float:
    return seconds * 1e6
