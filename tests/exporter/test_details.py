"""GEMM times of a pool: from the full results of a few nodes, each read once; what can't be read stops nothing."""

import base64
import gzip
import logging
from typing import Any

import pytest

from precision_api.exchange.request import canonical
from precision_api.exchange.result import GemmResult, MeasurementResult, Verification
from precision_api.facts.names import REPORT_PLURAL
from precision_operator.cluster import ApiError
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


def report(number: int, run: str = "r1", version: str = "101") -> dict[str, Any]:
    status = report_status([recipe_row("mxfp8")], run=run, detail=f"d{number}")
    return report_object(f"n{number}", status=status, resourceVersion=version)


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
    details = Details(shelf, store, 4)
    await details.take()
    await details.take()
    assert len(shelf.asked) == len(set(shelf.asked)) == 4


async def test_a_new_run_is_read_anew() -> None:
    shelf, store = Shelf(d0=config_map(timed(1e-3))), sampled_store(1)
    details = Details(shelf, store, 4)
    await details.take()
    shelf.held["d0"] = config_map(timed(5e-3))
    store.see(REPORT_PLURAL, report(0, "r2", "102"))
    await details.take()
    assert shown(store) == {"qkv": 5e-3}


async def test_without_the_right_other_metrics_stand_and_the_log_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    store = sampled_store(5)
    with caplog.at_level(logging.WARNING):
        await Details(Shelf(), store, 3).take()
    assert shown(store) == {}
    assert b"precision_pool_nodes" in build(store.view()).fleet
    assert len(caplog.records) == 1
    assert "configmaps is forbidden" in caplog.text


def test_a_recipe_that_did_not_run_and_a_result_in_nvidias_method_give_no_times() -> None:
    assert [time.gemm for time in gemm_times(config_map(timed(1e-3)))] == ["qkv"]
    assert gemm_times(config_map(timed(1e-3, verification=Verification(verdict="fallback")))) == ()
    assert gemm_times(config_map(timed(1e-3).model_copy(update={"method": "nvidia"}))) == ()


@pytest.mark.parametrize("held", ["", "!", base64.b64encode(b"no gzip").decode()], ids=["none", "no base64", "no gzip"])
def test_a_config_map_without_a_result_is_a_value_error(held: str) -> None:
    with pytest.raises(ValueError):
        gemm_times({"binaryData": {"result.json.gz": held}})
