"""GEMM times of a pool: from the full results of a few nodes, each read once; what can't be read stops nothing."""

import base64
import gzip
import logging
from hashlib import sha256
from typing import Any

import pytest

from precision_api.exchange.request import canonical
from precision_api.exchange.result import GemmResult, MeasurementResult, Verification
from precision_api.facts.names import REPORT_PLURAL
from precision_operator.cluster import ApiError
from precision_operator.exporter import details
from precision_operator.exporter.body import build
from precision_operator.exporter.details import Details, gemm_times
from precision_operator.exporter.store import Store
from tests.support.exposition import samples_in, store_of
from tests.support.report_objects import recipe_row, report_object, report_status
from tests.support.result_objects import interval, recipe_result, result


def config_map(found: MeasurementResult) -> dict[str, Any]:
    text = canonical(found.model_dump(mode="json", by_alias=True, exclude_none=True))
    return {"binaryData": {"result.json.gz": base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()}}


def timed(seconds: float, **changes: Any) -> MeasurementResult:
    """A result of one recipe with one GEMM that takes so long, and one that failed."""
    good = GemmResult(name="qkv", pass_="fprop", m=1, k=1, n=1, count=2, mode="autocast", seconds=interval(seconds))
    bad = GemmResult.model_validate(
        {"name": "out", "pass": "fprop", "m": 1, "k": 1, "n": 1, "count": 2, "mode": "autocast"}
        | {"failure": {"reason": "no_kernel", "message": ""}}
    )
    return result(recipes=(recipe_result("mxfp8", gemms=(good, bad), **changes),))


class Shelf:
    """ConfigMaps by name, and which were asked for."""

    def __init__(self, **held: dict[str, Any]) -> None:
        self.held = held
        self.asked: list[str] = []

    async def get(self, path: str) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        self.asked.append(name)
        if name not in self.held:
            raise ApiError(403, "Forbidden", f"GET {path}: configmaps is forbidden")
        return self.held[name]


def sampled_store(count: int) -> Store:
    return store_of(*(report(number) for number in range(count)))


def report(number: int, run: str = "r1", version: str = "101", namespace: str = "ml", **of: str) -> dict[str, Any]:
    status = report_status([recipe_row("mxfp8")], run=run, detail=f"d{number}", **of)
    return report_object(f"n{number}", namespace=namespace, status=status, resourceVersion=version)


def shown(store: Store) -> dict[str, float]:
    samples = samples_in(build(store.view()).fleet)
    return {s.labels["gemm"]: s.value for s in samples if s.name == "precision_pool_gemm_seconds"}


async def test_nothing_is_asked_unless_wanted_and_a_pool_shows_the_median_of_its_sample() -> None:
    store = sampled_store(3)
    shelf = Shelf(d0=config_map(timed(1e-3)), d1=config_map(timed(2e-3)), d2=config_map(timed(9e-3)))
    await Details(shelf, store, 8).take()
    assert shown(store) == {"qkv": 2e-3}
    shelf = Shelf()
    await Details(shelf, sampled_store(5), 0).take()
    assert shelf.asked == []


async def test_no_more_nodes_are_asked_than_wanted_and_each_result_is_read_once() -> None:
    store = sampled_store(20)
    shelf = Shelf(**{f"d{number}": config_map(timed(1e-3)) for number in range(20)})
    kept = Details(shelf, store, 4)
    await kept.take()
    await kept.take()
    assert len(shelf.asked) == len(set(shelf.asked)) == 4


async def test_a_new_run_is_read_anew() -> None:
    shelf, store = Shelf(d0=config_map(timed(1e-3))), sampled_store(1)
    kept = Details(shelf, store, 4)
    await kept.take()
    shelf.held["d0"] = config_map(timed(5e-3))
    store.see(REPORT_PLURAL, report(0, "r2", "102"))
    await kept.take()
    assert shown(store) == {"qkv": 5e-3}


async def test_without_the_right_other_metrics_stand_and_the_log_says_so_once_a_namespace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = store_of(*map(report, range(5)), *(report(number, namespace="other") for number in range(5)))
    with caplog.at_level(logging.WARNING):
        await Details(Shelf(), store, 3).take()
    assert shown(store) == {}
    assert b"precision_pool_nodes" in build(store.view()).fleet
    assert len(caplog.records) == 2
    assert "configmaps is forbidden" in caplog.text


async def test_what_the_api_server_refused_is_read_five_minutes_later() -> None:
    shelf, store = Shelf(), sampled_store(1)
    kept = Details(shelf, store, 1)
    await kept.take()
    shelf.held["d0"] = config_map(timed(2e-3))
    await kept.take()
    assert shown(store) == {"qkv": 2e-3}


async def test_namespaces_take_turns_and_show_what_is_read_before_others_are() -> None:
    store = store_of(*(report(number, namespace="many") for number in range(9)), report(9))
    seen = list[dict[str, float]]()

    class Looked(Shelf):
        async def get(self, path: str) -> dict[str, Any]:
            seen.append(shown(store))
            return await super().get(path)

    await Details(Looked(d9=config_map(timed(7e-3))), store, 9).take()
    assert seen == [{}] * 2 + [{"qkv": 7e-3}] * 8


async def test_what_the_operator_did_not_write_and_what_has_no_room_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made, other = config_map(timed(1e-3)), config_map(timed(9e-3))
    digits = sha256(base64.b64decode(made["binaryData"]["result.json.gz"])).hexdigest()[:24]
    for held, most, shows in ((made, (1, 1, 1), True), (other, (1, 1, 1), False), (made, (1, 1, 0), False),
                              (made, (1, 0, 1), False), (made, (0, 1, 1), False)):  # fmt: skip
        for name, number in zip(("MOST_NODES", "MOST_TIMES", "MOST_OF_NODE"), most, strict=True):
            monkeypatch.setattr(details, name, number)
        store = store_of(report(0, detailSha256=digits))
        await Details(Shelf(d0=held), store, 1).take()
        assert shown(store) == ({"qkv": 1e-3} if shows else {})
    assert "is not what the operator wrote" in caplog.text
    assert "1 times, of which 0 have room" in caplog.text


def test_a_recipe_that_did_not_run_and_a_result_in_nvidias_method_give_no_times() -> None:
    assert [time.gemm for time in gemm_times(config_map(timed(1e-3)))] == ["qkv"]
    assert gemm_times(config_map(timed(1e-3, verification=Verification(verdict="fallback")))) == ()
    assert gemm_times(config_map(timed(1e-3).model_copy(update={"method": "nvidia"}))) == ()


@pytest.mark.parametrize("held", ["", "!", base64.b64encode(b"no gzip").decode()], ids=["none", "no base64", "no gzip"])
def test_a_config_map_without_a_result_is_a_value_error(held: str) -> None:
    with pytest.raises(ValueError):
        gemm_times({"binaryData": {"result.json.gz": held}})
