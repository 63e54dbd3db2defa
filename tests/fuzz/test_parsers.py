"""Every parser of data from outside, on any text and on documents with a part damaged: it reads, or it refuses.

A refusal is the exception that the parser promises; any other one fails. `make fuzz` asks each parser 10,000 times.
"""

import copy
import io
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from precision_agent.precision.kernels import classify
from precision_agent.run.trace_reading import BadTrace, kernels_of
from precision_api.exchange import wire
from precision_api.exchange.request import MeasurementRequest
from precision_api.kinds.profile import Schedule
from precision_api.models.huggingface import model_from_config
from precision_operator.cluster.errors import error_of
from precision_operator.core.attempts.refusal import Answer
from precision_operator.core.attempts.refusal import classify as classify_answer
from precision_operator.core.eligibility.schedule import schedule_problem
from precision_operator.core.observe import waiting_pods
from precision_operator.core.observe.configuration import AgentDefaults
from precision_operator.core.observe.gpu_slices import slice_view
from precision_operator.core.observe.nodes import node_facts, quantity
from precision_operator.core.observe.stop import stop_in
from precision_operator.core.observe.views import profile_view
from precision_operator.core.results.log_tail import log_tail
from tests.planner.test_bad_input import places
from tests.support.golden import beside
from tests.support.node_objects import EIGHT_H100, node_object
from tests.support.result_objects import request_text, result
from tests.support.small_model import SMALL_LLAMA

TABLES = beside(__file__)

NOW = datetime(2026, 11, 22, tzinfo=UTC)
GOLDEN = Path(__file__).parents[1] / "golden"
TRACE = {"traceEvents": [{"ph": "X", "cat": "kernel", "name": "nvjet_hsh", "ts": 1, "dur": 2.5, "args": {"stream": 7}}]}
SLICES = json.loads((GOLDEN / "gpu_nodes.json").read_text())["resource_slices"]
SLICE = {"spec": {"driver": SLICES[0]["driver"], "nodeName": "n1", "devices": SLICES[0]["devices"]}}
PROFILE = TABLES["profile"]

WAITING = TABLES["waiting"]
CLAIM = TABLES["claim"]
CLASS = {"spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]}}


def _read_waiting(raw: Any) -> None:
    waiting_pods.could_be_helped(raw)
    waiting_pods.gpus_of_resources(raw, "gpu.nvidia.com")
    waiting_pods.waiting_pod(raw, 1, NOW).may_run_on(node_facts(node_object(EIGHT_H100 | {"rank": "7"})))


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True)
    | st.text(max_size=40)
    | st.sampled_from(["-1", "1e999", "9" * 400, "\x1b[31m", "</script>", "${x}", "NaN", "8Gi", "1.2.3"])
)
ANYTHING = st.recursive(
    _SCALARS,
    lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(max_size=8), part, max_size=3),
    max_leaves=6,
)
"""What JSON can hold, and what it can't."""


def damaged(document: Any) -> st.SearchStrategy[Any]:
    """The document with a few of its parts replaced by anything."""
    every = list(places(document))

    def put(changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
        found = copy.deepcopy(document)
        for place, value in changes:
            with suppress(KeyError, IndexError, TypeError):  # an earlier change has taken this place away
                part = found
                for key in place[:-1]:
                    part = part[key]
                part[place[-1]] = value
        return found

    return st.lists(st.tuples(st.sampled_from(every), ANYTHING), min_size=1, max_size=3).map(put)


def as_text(documents: st.SearchStrategy[Any]) -> st.SearchStrategy[str]:
    """Documents as JSON, some of them cut off; and any other text."""
    whole = documents.map(json.dumps)
    cut = st.tuples(whole, st.integers(0, 400)).map(lambda pair: pair[0][: pair[1]])
    return whole | cut | st.text(max_size=200)


@dataclass(frozen=True)
class Parser:
    """What it is fed, how it is called, and what it may raise."""

    fed: st.SearchStrategy[Any]
    read: Callable[[Any], Any]
    refuses: tuple[type[Exception], ...] = ()


MESSAGE = json.loads(wire.encode(result()).message)
PARSERS = {
    "a Hugging Face config": Parser(as_text(damaged(SMALL_LLAMA)), model_from_config, (ValueError,)),
    "an agent's request": Parser(
        as_text(damaged(json.loads(request_text()))), MeasurementRequest.model_validate_json, (ValueError,)
    ),
    "an agent's message": Parser(
        as_text(damaged(MESSAGE)) | st.binary(max_size=200), wire.read_message, (wire.WireError,)
    ),
    "an agent's log": Parser(st.binary(max_size=400) | st.text(max_size=400).map(str.encode), log_tail),
    "a node": Parser(damaged(node_object(EIGHT_H100)), node_facts),
    "a ResourceSlice": Parser(damaged(SLICE), slice_view),
    "a pod that waits for GPUs": Parser(damaged(WAITING), _read_waiting),
    "a claim of GPUs": Parser(
        damaged(CLAIM),
        lambda raw: (waiting_pods.gpus_of_claim(raw, {"gpu.nvidia.com": True}), waiting_pods.classes_of(raw)),
    ),
    "a DeviceClass": Parser(damaged(CLASS), waiting_pods.class_of_gpus),
    "a quantity": Parser(ANYTHING | st.from_regex(r"[0-9.]{1,20}[eEKMGTPi]{0,3}[0-9]{0,3}"), quantity),
    "a profile": Parser(damaged({"spec": PROFILE["spec"]}).map(lambda part: PROFILE | part), profile_view),
    "an admin's stop": Parser(
        st.dictionaries(st.sampled_from(["agents", "message", "x"]), st.text(max_size=40)),
        lambda data: stop_in(data, "x"),
    ),
    "the chart's defaults of agents": Parser(
        as_text(damaged({"queueName": "gpus", "podLabels": {"a": "b"}, "flavorLabels": ["x"]})),
        AgentDefaults.model_validate_json,
        (ValueError,),
    ),
    "a schedule": Parser(
        st.from_regex(r"[0-9*/,-]{1,6}( [0-9*/,A-Za-z#?L-]{1,6}){4}", fullmatch=True)
        | st.text(min_size=1, max_size=40),
        lambda cron: schedule_problem(Schedule.model_validate({"cron": cron}), NOW),
        (ValueError,),
    ),
    "an API server's error": Parser(
        as_text(damaged({"kind": "Status", "reason": "x", "details": {"causes": [{"reason": "y"}]}})).map(str.encode),
        lambda body: error_of("GET /x", 422, "", body, None),
    ),
    "a webhook's words": Parser(st.text(max_size=400), lambda words: classify_answer(Answer(words))),
    "a kernel's name": Parser(st.text(max_size=200), classify),
    "a profiler's trace": Parser(
        as_text(damaged(TRACE)).map(str.encode), lambda raw: list(kernels_of("-", io.BytesIO(raw))), (BadTrace,)
    ),
}


@pytest.mark.parametrize("name", PARSERS)
def test_it_reads_or_refuses(name: str) -> None:
    parser = PARSERS[name]

    @settings(suppress_health_check=list(HealthCheck))
    @given(parser.fed)
    def ask(fed: Any) -> None:
        try:
            parser.read(fed)
        except parser.refuses:
            return

    ask()
