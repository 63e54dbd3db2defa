"""GEMM times of a pool, from the full results of a few of its nodes.

They stand in ConfigMaps beside the reports. Medians of a sample say what the recipes do on this hardware; reading all
of a fleet's would cost more than it tells. Off unless it is asked for: it needs the right to get ConfigMaps.
"""

import asyncio
import base64
import logging
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.summary import USABLE
from precision_api.exchange.wire import unpacked
from precision_api.facts.json_text import read_json
from precision_api.facts.names import grouped
from precision_operator.cluster import ApiError, Cluster
from precision_operator.cluster.paths import config_maps, item
from precision_operator.core.results.reading import Reading
from precision_operator.exporter.reading import GemmTime
from precision_operator.exporter.store import Store

_log = logging.getLogger(__name__)
_KEY = "result.json.gz"


def gemm_times(raw: Mapping[str, Any]) -> tuple[GemmTime, ...]:
    """The times in a ConfigMap with a full result: of recipes whose precision is proved, without those that failed.

    Raises ValueError where it holds none. A result in NVIDIA's method is for comparison only, and gives none.
    """
    packed = base64.b64decode(str((raw.get("binaryData") or {}).get(_KEY) or ""), validate=True)
    result = read_json(MeasurementResult, unpacked(packed))
    if result.method != "agent":
        return ()
    return tuple(
        GemmTime(recipe.recipe, gemm.name, gemm.pass_, gemm.mode, gemm.seconds.value)
        for recipe in result.recipes
        if recipe.verification.verdict in USABLE
        for gemm in recipe.gemms
        if gemm.seconds is not None
    )


def sample(results: Iterable[Reading], most: int) -> tuple[Reading, ...]:
    """At most `most` nodes of each pool and workload whose full result is there, the same ones every time.

    Nodes on which any recipe was throttled are left out: there are others to read.
    """
    groups = grouped(
        ((result.namespace, result.profile, result.pool, result.workload), result)
        for result in results
        if result.run is not None and result.run.detail and result.holds and not result.marks.throttled
    )
    return tuple(time for group in groups.values() for time in sorted(group, key=_place)[:most])


def _place(result: Reading) -> bytes:
    return blake2b(result.node.encode(), digest_size=8).digest()


EVERY_SECONDS = 300.0


class Details:
    """Keeps the GEMM times of the sampled nodes; each full result is read once."""

    def __init__(self, cluster: Cluster, store: Store, most: int) -> None:
        self._cluster = cluster
        self._store = store
        self._most = most
        self._known: dict[tuple[str, str, str], tuple[GemmTime, ...]] = {}
        self._told = False

    async def keep(self) -> None:
        """Read what is new, now and every five minutes, forever."""
        while True:
            await self.take()
            await asyncio.sleep(EVERY_SECONDS)

    async def take(self) -> None:
        """Read what is new among the sampled nodes, and give all of it to the store."""
        results = [entry.result for entry in self._store.view().reports if entry.result is not None]
        chosen = sample(results, self._most) if self._most else ()
        times: dict[tuple[str, str, str], tuple[GemmTime, ...]] = {}
        for key in map(_key, chosen):
            times[key] = self._known[key] if key in self._known else await self._read(key)
        self._known = times
        owners = {(result.namespace, result.profile, result.node): _key(result) for result in chosen}
        self._store.put_gemms({owner: times[key] for owner, key in owners.items()})

    async def _read(self, key: tuple[str, str, str]) -> tuple[GemmTime, ...]:
        """The times in one ConfigMap; none, with a line in the log, where it can't be read."""
        namespace, name, _ = key
        try:
            return gemm_times(await self._cluster.get(item(config_maps(namespace), name)))
        except (ApiError, ValueError) as error:
            if not self._told:
                why = " ".join(str(error).split())[:300]
                _log.warning("GEMM times of %s/%s: %s; further ones are not exported", namespace, name, why)
            self._told = True
            return ()


def _key(result: Reading) -> tuple[str, str, str]:
    """(namespace, ConfigMap, run)"""
    run = result.run
    return result.namespace, (run and run.detail) or "", run.run if run else ""
