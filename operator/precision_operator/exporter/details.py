"""GEMM times of a pool, from the full results of a few of its nodes.

They stand in ConfigMaps beside the reports. Medians of a sample say what the recipes do on this hardware; reading all
of a fleet's would cost more than it tells. Off unless it is asked for: it needs the right to get ConfigMaps.
"""

import asyncio
import base64
import logging
from collections.abc import Iterable, Mapping
from hashlib import blake2b, sha256
from itertools import zip_longest
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


def gemm_times(raw: Mapping[str, Any], digits: str = "") -> tuple[GemmTime, ...]:
    """The times in a ConfigMap with a full result: of recipes whose precision is proved, without those that failed.

    Raises ValueError where none has a SHA-256 that begins with `digits`. A result in NVIDIA's method gives no times.
    """
    packed = base64.b64decode(str((raw.get("binaryData") or {}).get(_KEY) or ""), validate=True)
    if not sha256(packed).hexdigest().startswith(digits):
        raise ValueError(f"{_KEY} is not what the operator wrote")
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
MOST_NODES, MOST_TIMES, MOST_OF_NODE = 1_024, 131_072, 2_048
"""Nodes and times of a namespace, and times of a node: some 33 MiB for all that a namespace keeps."""


class Details:
    """Keeps the GEMM times of the sampled nodes; each full result is read once."""

    def __init__(self, cluster: Cluster, store: Store, most: int) -> None:
        self._cluster = cluster
        self._store = store
        self._most = most
        self._known: dict[tuple[str, str, str], tuple[GemmTime, ...]] = {}
        self._warned: set[str] = set()
        """Namespaces."""

    async def keep(self) -> None:
        """Read what is new, now and every five minutes, forever."""
        while True:
            await self.take()
            await asyncio.sleep(EVERY_SECONDS)

    async def take(self) -> None:
        """Read what is new among the sampled nodes, namespaces in turns, and give the store each turn's."""
        results = [entry.result for entry in self._store.view().reports if entry.result is not None]
        sampled = grouped((it.namespace, it) for it in (sample(results, self._most) if self._most else ()))
        chosen = [rows[:MOST_NODES] for rows in sampled.values()]
        owners = {(it.namespace, it.profile, it.node): _key(it) for rows in chosen for it in rows}
        self._known = {key: self._known[key] for key in owners.values() if key in self._known}
        for turn in ((), *zip_longest(*chosen)):
            new = [it for it in turn if it is not None and _key(it) not in self._known]
            self._known |= {_key(it): times for it in new if (times := await self._read(it)) is not None}
            if new or not turn:
                self._store.put_gemms({of: self._known[key] for of, key in owners.items() if key in self._known})

    async def _read(self, result: Reading) -> tuple[GemmTime, ...] | None:
        """The times in one ConfigMap; none, with a line in the log, where it isn't right or holds too many.

        None: the API server did not give it; it is asked again.
        """
        namespace, name, _ = _key(result)
        left = MOST_TIMES - sum(len(times) for key, times in self._known.items() if key[0] == namespace)
        try:
            raw = await self._cluster.get(item(config_maps(namespace), name))
            times = await asyncio.to_thread(gemm_times, raw, (result.run and result.run.detail_sha256) or "")
            if len(times) > (most := min(left, MOST_OF_NODE)):
                raise ValueError(f"{len(times)} times, of which {most} have room: measure fewer shapes")
        except (ApiError, ValueError) as error:
            if namespace not in self._warned:
                why = " ".join(str(error).split())[:300]
                _log.warning("GEMM times of %s/%s are left out: %s; said once a namespace", namespace, name, why)
            self._warned.add(namespace)
            return None if isinstance(error, ApiError) else ()
        return times


def _key(result: Reading) -> tuple[str, str, str]:
    """(namespace, ConfigMap, run)"""
    run = result.run
    return result.namespace, (run and run.detail) or "", run.run if run else ""
