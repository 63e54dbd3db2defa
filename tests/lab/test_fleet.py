"""The simulated fleet: nodes as real ones describe themselves, and traits; what real nodes lack and leave behind.

The plans of a swept fleet: answered by the real planner, and moved by what happens to the fleet.
"""

from collections import Counter
from dataclasses import fields, replace
from functools import cache
from typing import Any

import pytest

from precision_api.facts.products import PRODUCT_CLASSES, ProductClass, part
from precision_lab.fleet.fleet import NodeSpec, demo_fleet, is_busy, manifests, node_manifest
from precision_lab.fleet.hardware import HARDWARE
from precision_lab.nodes.leftovers import Snapshot
from precision_lab.nodes.support import missing
from precision_lab.pictures.pages import NODES, SHOWN, SWEEPS
from precision_lab.pictures.sweep_plans import BOUND, INFEASIBLE, SOLVED
from precision_lab.pictures.sweeps import Sweep, sweeps
from precision_operator.planner.answer.document import status


def label(made: dict[str, Any], name: str) -> str | None:
    return made["metadata"]["labels"].get(f"nvidia.com/{name}")


def test_a_gb200_tray_looks_like_one() -> None:
    made = node_manifest(NodeSpec("GB200", traits=("arch-taint",)), "gb200-0000", 0)
    expected = {
        "gpu.product": "NVIDIA-GB200",
        "gpu.count": "4",
        "gpu.compute.major": "10",
        "gpu.compute.minor": "0",
        "cuda.driver-version.full": "580.126.20",
        "mig.capable": "true",
    }
    assert {name: label(made, name) for name in expected} == expected
    assert made["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
    assert tuple(made["status"][kind]["nvidia.com/gpu"] for kind in ("capacity", "allocatable")) == ("4", "4")
    assert made["spec"]["taints"] == [
        {"key": "nvidia.com/gpu", "effect": "NoSchedule"},
        {"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"},
    ]


def test_the_trays_of_one_rack_share_their_nvlink_domain_and_no_other_rack_has_it() -> None:
    cliques = [label(made, "gpu.clique") for made in manifests([NodeSpec("GB300", 36)])]
    assert sorted(Counter(cliques).values()) == [18, 18]


@pytest.mark.parametrize("product", PRODUCT_CLASSES)
def test_the_label_of_every_product_is_known_to_the_contract_as_that_product(product: ProductClass) -> None:
    known = part(HARDWARE[product].label)
    assert (known.product, known.compute) == (product, HARDWARE[product].compute)
    assert known.host_arch in (None, HARDWARE[product].arch)


def test_the_demo_fleet_has_24_nodes_with_one_of_each_trouble() -> None:
    made = list(manifests(demo_fleet()))
    assert Counter(HARDWARE[spec.product].product for spec in demo_fleet() for _ in range(spec.count)) == {
        "GB200": 10,
        "GB300": 6,
        "H100": 8,
    }
    assert len({item["metadata"]["name"] for item in made}) == 24
    assert sum(bool(item["spec"].get("unschedulable")) for item in made) == 1
    assert sum("-MIG-" in str(label(item, "gpu.product")) for item in made) == 1
    assert sum(is_busy(item) for item in made) == 1
    asked = [item["metadata"]["annotations"] for item in made]
    assert Counter(told.get("lab.precisionprofiler.io/scale") for told in asked) == {None: 19, "0.97": 4, "0.8": 1}
    assert sum("lab.precisionprofiler.io/fault" in told for told in asked) == 1


NOTHING = Snapshot(*[frozenset[str]()] * len(fields(Snapshot)))


def test_without_root_it_is_said_and_what_came_and_went_with_its_kind() -> None:
    (sentence,) = missing(user_id=1000)
    assert "as root" in sentence
    later = replace(NOTHING, mounts=frozenset({"/a"}), interfaces=frozenset({"veth0"}))
    assert NOTHING.differences(later) == ["mounts: + /a", "interfaces: + veth0"]
    assert later.differences(NOTHING) == ["mounts: - /a", "interfaces: - veth0"]


@cache
def small() -> tuple[Sweep, ...]:
    """A fleet of 24 nodes, whose plans are solved once for all tests that ask for them."""
    return sweeps(24)


def test_the_same_sweep_gives_the_same_bytes_whose_figures_are_simulated() -> None:
    for sweep in small()[::4]:
        plans = {plan["metadata"]["name"]: plan["status"] for plan in sweep.plans}
        assert {name: plan["phase"] for name, plan in plans.items()} == {
            SOLVED: "Solved", INFEASIBLE: "Infeasible", BOUND: "Solved"
        }  # fmt: skip
        for plan in plans.values():
            assert plan["notes"][0].startswith("SIMULATED: ")
            assert all(pool["data"].startswith("simulated") for pool in plan["pools"])
    assert small()[4].body == sweeps(24)[4].body


def test_the_stories_of_the_pictures_move_the_plan_and_make_it_dearer() -> None:
    """As docs/dashboards.md tells of the fleet that is drawn: a slow node, a hot rack of GB200, a worse driver."""
    fleet = [status(sweep.answer(SOLVED)) for sweep in sweeps(NODES, SWEEPS)[1:SHOWN]]
    pools = [next(job.pool for job in found.jobs if job.name == "pretrain") for found in fleet]
    assert pools == ["NVIDIA-GB200", "NVIDIA-GB200", "NVIDIA-GB300", "NVIDIA-GB200"]
    dollars = [float(found.totals.dollars or 0) for found in fleet if found.totals]
    assert 0 < dollars[0] < dollars[1] < dollars[2] < dollars[3]
