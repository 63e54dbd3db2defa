"""An operator is killed at each of its writes while it measures a node by claim: the next one leaves one of each."""

from typing import Any

import pytest

from precision_operator.cluster import paths
from tests.support.fake_cluster import FakeCluster
from tests.support.node_objects import node_object, slice_object
from tests.support.operator_in_memory import CLASSES, JOBS, NAMESPACE, PODS, REPORTS, OperatorInMemory
from tests.support.world import SETTINGS

RESOURCE = "/apis/resource.k8s.io/v1"
TEMPLATES = f"{RESOURCE}/namespaces/{NAMESPACE}/resourceclaimtemplates"
WRITES = ("POST", "PATCH", "DELETE")


class Killed(BaseException):
    """The operator's process is gone: nothing of it may go on."""


class Mortal(FakeCluster):
    """A cluster whose operator is killed at one of its writes: before it is done, or after, without its answer."""

    def __init__(self, *objects: tuple[str, Any]) -> None:
        super().__init__(*objects)
        self.writes = 0
        self.kill_at: int | None = None
        self.kill_after = False
        self.killed = False
        self.done: list[tuple[str, str]] = []
        """Creations and deletions that were done."""

    def _asked(self, method: str, path: str, after: bool = False) -> None:
        super()._asked(method, path, after)
        if self.killed:
            raise Killed
        if method not in WRITES:
            return
        self.writes += not after
        if after:
            self.done.append((method, path))
        if self.writes == self.kill_at and after is self.kill_after:
            self.killed = True
            raise Killed


def world() -> Mortal:
    """A node whose GPUs come by claim, and a profile over it."""
    cluster = Mortal((CLASSES, {"metadata": {"name": SETTINGS.priority_class}}))
    cluster._store(f"{paths.NODES}/n1", node_object({}, name="n1", gpus=None))
    cluster._store(f"{RESOURCE}/resourceslices/n1", slice_object(node="n1"))
    cluster._store(f"{RESOURCE}/deviceclasses/gpu.nvidia.com", {"metadata": {"name": "gpu.nvidia.com"}})
    OperatorInMemory(cluster=cluster).apply("nightly")
    return cluster


async def measures(operator: OperatorInMemory, passes: int = 6) -> None:
    """The operator's passes, and between them the Job's controller and the agent at work."""
    for _ in range(passes):
        await operator.once()
        for node in operator.jobs():
            if any(path.startswith(f"{PODS}/") for path in operator.cluster.objects):
                operator.end_agent(node)
            else:
                operator.run_agents()
        operator.collect_garbage()


def there(cluster: Mortal, collection: str) -> list[dict[str, Any]]:
    return [body for path, body in cluster.objects.items() if path.startswith(f"{collection}/")]


async def test_killed_at_any_write_the_next_operator_leaves_one_of_each_and_measures_once() -> None:
    undisturbed = world()
    await measures(OperatorInMemory(cluster=undisturbed))
    assert undisturbed.writes >= 6, "a report, a template, a Job, the figures, the full result, the Job's end, statuses"
    for number in range(1, undisturbed.writes + 1):
        for after in (False, True):
            cluster = world()
            cluster.kill_at, cluster.kill_after = number, after
            with pytest.raises(Killed):
                await measures(OperatorInMemory(cluster=cluster))
            cluster.kill_at, cluster.killed = None, False
            await measures(OperatorInMemory(cluster=cluster))
            where = f"killed {'after' if after else 'before'} write {number}"
            created = [path for method, path in cluster.done if method == "POST" and path.startswith(f"{JOBS}/")]
            assert len(created) == 1, where
            assert len([path for method, path in cluster.done if method == "POST" and TEMPLATES in path]) == 1, where
            assert (len(there(cluster, TEMPLATES)), len(there(cluster, JOBS))) == (1, 0), where
            (report,) = there(cluster, REPORTS)
            attempt = report["status"]["attempt"]
            assert (attempt["outcome"], attempt["number"]) == ("succeeded", 1), where
