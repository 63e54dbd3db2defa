"""What is read out of Node objects: real ones, trimmed ones and broken ones."""

import pickle
from typing import Any

import pytest

from precision_operator.core.observe.gpu_slices import slice_view
from precision_operator.core.observe.nodes import NodeFacts, Taint, facts_of_all, node_facts, same_driver
from precision_operator.core.observe.raw_object import quantity
from tests.support.golden import beside
from tests.support.node_objects import EIGHT_H100, node_object, resource_slice, slice_object

TABLES = beside(__file__)


def test_a_full_node_is_read_into_facts() -> None:
    labels = {
        "kubernetes.io/arch": "arm64",
        "nvidia.com/gpu.product": "NVIDIA-GB200",
        "nvidia.com/gpu.count": "4",
        "nvidia.com/gpu.memory": "189471",
        "nvidia.com/gpu.compute.major": "10",
        "nvidia.com/gpu.compute.minor": "0",
        "nvidia.com/gpu.clique": "5f1e9f9c-0c7b-4a8e-9f39-0d6a34a0a3cf.1",
        "nvidia.com/cuda.driver-version.full": "580.126.20",
        "rack": "r7",
    }
    raw = node_object(
        labels, name="gb-1", gpus="4", taints=[{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    )
    assert node_facts(raw, "rack") == NodeFacts(
        name="gb-1",
        uid="uid-gb-1",
        product="GB200",
        product_name="NVIDIA-GB200",
        gpus=4,
        allocatable_gpus=4,
        capacity_gpus=4,
        cpu_millis=96_000,
        arch="arm64",
        compute=(10, 0),
        driver="580.126.20",
        clique="5f1e9f9c-0c7b-4a8e-9f39-0d6a34a0a3cf.1",
        memory_mib=189471,
        pool="r7",
        evidence="capacity nvidia.com/gpu: 4",
        images=("registry.example/agent:1",),
        taints=(Taint("nvidia.com/gpu", "present", "NoSchedule"),),
        labels=labels,
    )


def test_facts_can_be_saved_and_an_empty_object_is_a_node_without_gpus() -> None:
    facts = node_facts(node_object())
    assert pickle.loads(pickle.dumps(facts)) == facts
    assert hash(facts) == hash(node_facts(node_object()))
    facts = node_facts({})
    assert (facts.name, facts.uid, facts.gpus, facts.product, facts.evidence) == ("", "", 0, None, None)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("8", 8),
        (8, 8),
        ("8k", 8000),
        ("16Gi", 16 * 2**30),
        ("81559Mi", 81559 * 2**20),
        ("2500m", 2),
        ("1e3", 1000),
        ("1.5G", 1_500_000_000),
        ("0", 0),
        ("", None),
        ("-1", None),
        ("eight", None),
        ("8x", None),
        ("1e999", None),
        (True, None),
        (None, None),
        (8.5, None),
    ],
)
def test_quantities_are_parsed_not_stripped(text: object, number: int | None) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize(("one", "other", "same"), TABLES["driver_versions"])
def test_driver_versions_are_compared_as_versions(one: str, other: str, same: bool) -> None:
    assert same_driver(one, other) is same
    assert same_driver(other, one) is same


def test_allocatable_is_counted_else_capacity_else_the_label() -> None:
    facts = node_facts(node_object(allocatable={"nvidia.com/gpu": "7"}, capacity={"nvidia.com/gpu": "8"}))
    assert (facts.gpus, facts.capacity_gpus) == (7, 8)
    raw = node_object()
    del raw["status"]["allocatable"]
    assert node_facts(raw).gpus == 8
    raw["status"] = {}
    assert node_facts(raw).gpus == 8
    assert node_facts({"metadata": {"labels": {"nvidia.com/gpu.product": "NVIDIA-B200"}}}).gpus == 0


@pytest.mark.parametrize(("labels", "name"), TABLES["gpu_names"])
def test_the_gpus_name_is_read_from_the_most_exact_label(labels: dict[str, str], name: str | None) -> None:
    facts = node_facts(node_object(labels))
    assert facts.product_name == name
    assert facts.product in ("B200", "GB200", "H100", "H200")


def test_an_unsupported_name_is_not_overruled_nor_a_node_called_unready() -> None:
    labels = {"nvidia.com/gpu.product": "Tesla-T4", "node.kubernetes.io/instance-type": "p5.48xlarge"}
    assert node_facts(node_object(labels)).product is None
    raw = node_object()
    raw["status"]["conditions"] = []
    assert node_facts(raw).ready
    assert node_facts(node_object(ready="Unknown")).not_ready == "condition Ready is Unknown (KubeletReady)"


@pytest.mark.parametrize(("labels", "driver"), TABLES["drivers"])
def test_the_driver_is_read_from_one_label_or_three(labels: dict[str, str], driver: str | None) -> None:
    assert node_facts(node_object(labels)).driver == driver


@pytest.mark.parametrize(("value", "clique"), TABLES["cluster_uuids"])
def test_a_zero_cluster_uuid_is_no_nvlink_domain(value: str, clique: str | None) -> None:
    assert node_facts(node_object({"nvidia.com/gpu.clique": value})).clique == clique


@pytest.mark.parametrize(("labels", "arch"), TABLES["architectures"])
def test_host_architecture_is_labelled_or_follows_from_the_superchip(labels: dict[str, str], arch: str | None) -> None:
    assert node_facts(node_object(labels)).arch == arch


def test_capability_is_of_the_label_first_and_a_pool_without_label_of_its_gpu() -> None:
    assert node_facts(node_object()).compute == (9, 0)
    told = {"nvidia.com/gpu.compute.major": "12", "nvidia.com/gpu.compute.minor": ""}
    assert node_facts(node_object(EIGHT_H100 | told)).compute == (12, 0)
    assert node_facts(node_object(), "rack").pool == "NVIDIA-H100-80GB-HBM3"
    assert node_facts(node_object({}), "rack").pool == "unlabelled"


def test_resource_slices_of_the_node_name_the_gpu_where_no_label_does() -> None:
    facts = node_facts(node_object({}, gpus=None), slices=[resource_slice("NVIDIA GB300", count=4)])
    assert (facts.product, facts.gpus, facts.compute, facts.driver) == ("GB300", 4, (10, 3), "580.159.4")
    assert (facts.way, facts.product_name, facts.pool, facts.memory_mib) == (
        "claim",
        "NVIDIA-GB300",
        "NVIDIA-GB300",
        284208,
    )
    facts = node_facts(node_object({}, gpus=None), slices=[resource_slice("NVIDIA GB300", count=4, node="n2")])
    assert (facts.gpus, facts.way, facts.published) == (0, "plugin", None)


def versioned(version: str, **labels: str) -> dict[str, Any]:
    node = node_object(EIGHT_H100 | labels, name="n1")
    return {**node, "metadata": {**node["metadata"], "uid": "uid-n1", "resourceVersion": version}}


def test_facts_follow_the_version_of_the_node_its_pool_label_and_its_slices() -> None:
    def pool(version: str, label: str = "pool", **labels: str) -> str:
        return facts_of_all({"uid-n1": versioned(version, **labels)}, label, ())["uid-n1"].pool

    assert pool("1", pool="a") == "a"
    assert pool("2", pool="b") == "b"
    assert pool("2", "other", pool="b", other="c") == "c"

    def dra(driver: str, of: str) -> Any:
        gpu = {"type": {"string": "gpu"}, "driverVersion": {"version": driver}}
        return slice_view(slice_object(node=of, devices=[{"name": "gpu-0", "attributes": gpu}]))

    bare = versioned("7")
    bare["metadata"]["labels"] = {}
    found = [
        facts_of_all({"uid-n1": bare}, "pool", slices)["uid-n1"].driver
        for slices in ((dra("580.1", "n1"), dra("570.1", "n2")), (dra("585.2", "n1"),), ())
    ]
    assert found == ["580.1", "585.2", None]
