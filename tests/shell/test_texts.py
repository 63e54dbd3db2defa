"""ConfigMaps that profiles name: each is read as it is when its profile comes, and none is kept that nobody names."""

import asyncio
import json
from typing import Any

import pytest

from precision_api.facts.names import REQUEST_ENV
from precision_api.models.config_json import MAX_CONFIG_BYTES
from precision_operator.cluster import paths
from precision_operator.shell.observing.reader import MOST_KEYS
from tests.support.operator_in_memory import NAMESPACE, OperatorInMemory
from tests.support.small_model import SMALL_LLAMA

MAPS = paths.config_maps(NAMESPACE)


def write(loop: OperatorInMemory, name: str, **changes: Any) -> None:
    """A ConfigMap with a model of this many layers."""
    text = json.dumps(SMALL_LLAMA | changes)
    loop.cluster._store(f"{MAPS}/{name}", {"metadata": {"name": name, "namespace": NAMESPACE}, "data": {"c": text}})


def apply(loop: OperatorInMemory, profile: str, config_map: str, node: str, *namespace: str, **spec: Any) -> None:
    source = {"configMapKeyRef": {"name": config_map, "key": "c"}}
    workload = {"name": "m", "huggingFaceConfig": source, "microBatchSize": 1, "sequenceLength": 4096}
    loop.apply(profile, *namespace, workload=workload, target={"nodeNames": [node]}, **spec)


def reads(loop: OperatorInMemory) -> list[str]:
    """Names of the ConfigMaps that were asked for since this was asked last."""
    found = [
        path.rpartition("/")[2] for method, path in loop.cluster.requests if (method, MAPS in path) == ("GET", True)
    ]
    loop.cluster.requests.clear()
    return found


def layers(loop: OperatorInMemory, node: str) -> int:
    """Layers of the model that the agent of a node is to measure."""
    (container,) = loop.jobs()[node]["spec"]["template"]["spec"]["containers"]
    told = next(row["value"] for row in container["env"] if row["name"] == REQUEST_ENV)
    return int(json.loads(told)["workload"]["model"]["numHiddenLayers"])


async def test_a_profile_that_names_a_config_map_is_measured_with_its_text_as_it_is_when_the_profile_comes() -> None:
    """`kubectl apply` of a changed ConfigMap and a new profile: what another profile was read with is older."""
    loop = OperatorInMemory("n1", "n2")
    write(loop, "models", num_hidden_layers=32)
    apply(loop, "first", "models", "n1")
    await loop.once()
    write(loop, "models", num_hidden_layers=16)
    apply(loop, "second", "models", "n2")
    await loop.once()
    assert (layers(loop, "n1"), layers(loop, "n2")) == (32, 16)


async def test_a_text_serves_several_passes_and_is_forgotten_when_no_profile_names_it() -> None:
    loop = OperatorInMemory("n1")
    for name in ("a", "b"):
        write(loop, name)
    apply(loop, "nightly", "a", "n1")
    await loop.once()
    assert reads(loop) == ["a"]
    await loop.once()
    assert reads(loop) == []
    for name in ("b", "a"):
        apply(loop, "nightly", name, "n1")
        await loop.once()
        assert reads(loop) == [name], "nothing is left of what was read before"


async def test_a_text_that_is_too_long_is_refused_and_not_kept_whole() -> None:
    loop = OperatorInMemory("n1")
    loop.cluster._store(f"{MAPS}/a", {"metadata": {"name": "a"}, "data": {"c": "{" * 10 * MAX_CONFIG_BYTES}})
    apply(loop, "nightly", "a", "n1")
    await loop.once()
    told = loop.condition("nightly", "Accepted")
    assert told["reason"] == "InvalidWorkload"
    assert "at most 65536 characters" in told["message"]
    many = {f"{n:05}": "" for n in range(5_000)} | {"c": "{" * 10 * MAX_CONFIG_BYTES}
    loop.cluster._store(f"{MAPS}/a", {"metadata": {"name": "a"}, "data": many})
    kept = await loop.gatherer._reader.config_map(NAMESPACE, "a", ["c"]) or {}
    assert (len(kept["c"]), len(kept)) == (MAX_CONFIG_BYTES + 1, MOST_KEYS + 1)


@pytest.mark.parametrize("suspend", [False, True])
async def test_a_namespace_whose_texts_are_slow_to_read_holds_up_no_other(suspend: bool) -> None:
    """Texts of suspended profiles are read once; a profile whose text is being read keeps the status that it has."""
    loop = OperatorInMemory("n1", "n2", namespaces=(NAMESPACE, "team"))
    get, gate, read = loop.cluster.get, asyncio.Event(), list[str]()

    async def slow(path: str, query: object = None) -> Any:
        if "/namespaces/team/configmaps/" in path:
            read.append(path)
            await gate.wait()
            return {"data": {"c": json.dumps(SMALL_LLAMA)}}
        return await get(path, query)

    loop.cluster.get = slow
    for number in range(2):
        apply(loop, f"p{number}", f"m{number}", "n2", "team", suspend=suspend)
    await loop.begin("nightly", target={"nodeNames": ["n1"]})
    assert list(loop.jobs()) == ["n1"]
    assert "conditions" not in loop.status("p0", "team")
    assert (len(read), loop.metric("precision_operator_faults_total", where="profile")) == (1, 0)
    texts = loop.gatherer._texts
    texts._patience = None  # a look waits, and none rests
    gate.set()
    await loop.once()
    assert loop.condition("p1", "Accepted", "team")["status"] == "True"
    texts._last = {key: (0.0, value) for key, (_, value) in texts._last.items()}
    await loop.once()
    assert len(read) == (2 if suspend else 4)
