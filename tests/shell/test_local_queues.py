"""Kueue's queues by the version that the cluster serves, which changes while the operator runs."""

import pytest

from precision_operator.cluster import ApiError, paths
from precision_operator.shell.observing.local_queues import GROUP, PLURAL, LocalQueues
from tests.support.fake_cluster import FakeCluster

FORBIDDEN = ApiError(403, "Forbidden", "localqueues is forbidden")


def kueue(*versions: str) -> tuple[FakeCluster, LocalQueues]:
    """A cluster that serves the queue `ml/gpus` in these versions."""
    cluster = FakeCluster()
    serve(cluster, *versions)
    return cluster, LocalQueues(cluster)  # type: ignore[arg-type]


def serve(cluster: FakeCluster, *versions: str) -> None:
    cluster.serve(GROUP, PLURAL, *versions)
    for version in versions:
        cluster.objects[paths.item(paths.collection(f"{GROUP}/{version}", PLURAL, "ml"), "gpus")] = {}


@pytest.mark.parametrize("versions", [("v1beta1",), ("v1beta2",), ("v1beta2", "v1beta1"), ("v1",)])
async def test_a_queue_is_there_in_whichever_version_is_served(versions: tuple[str, ...]) -> None:
    cluster, queues = kueue(*versions)
    assert (await queues.has("ml", "gpus"), await queues.has("ml", "other")) == (True, False)
    assert {path.split("/")[3] for _, path in cluster.requests if path.endswith("/gpus")} == {versions[0]}


async def test_without_kueue_or_its_kinds_no_queue_is_there() -> None:
    cluster, queues = kueue()
    assert not await queues.has("ml", "gpus")
    assert cluster.requests == [("GET", f"/apis/{GROUP}")]
    cluster, queues = kueue("v1beta2")
    cluster.objects[f"/apis/{GROUP}"]["versions"].insert(0, {"groupVersion": f"{GROUP}/v1"})
    cluster.objects[f"/apis/{GROUP}/v1"] = {"resources": [{"name": "topologies"}]}
    assert await queues.has("ml", "gpus")


async def test_a_queue_that_is_there_costs_one_request_once_the_version_is_known() -> None:
    cluster, queues = kueue("v1beta2", "v1beta1")
    await queues.has("ml", "gpus")
    cluster.requests.clear()
    assert await queues.has("ml", "gpus")
    assert len(cluster.requests) == 1


async def test_an_upgrade_that_stops_serving_the_old_version_is_followed() -> None:
    cluster, queues = kueue("v1beta1")
    assert await queues.has("ml", "gpus")
    cluster.objects.clear()
    assert not await queues.has("ml", "gpus"), "Kueue was removed"
    serve(cluster, "v1beta2")
    assert await queues.has("ml", "gpus")


@pytest.mark.parametrize("part", [f"/apis/{GROUP}", "/gpus"])
async def test_what_may_not_be_read_is_no_missing_queue(part: str) -> None:
    cluster, queues = kueue("v1beta2")
    cluster.fail("GET", part, FORBIDDEN)
    with pytest.raises(ApiError, match="forbidden"):
        await queues.has("ml", "gpus")
