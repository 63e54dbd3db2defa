"""Which hardware a name means, what each part can do, and which recipes run where."""

import pytest

from precision_api.facts import products
from precision_api.facts.recipes import RECIPE_NAMES, RECIPES, alignment_error, misaligned, recipes_for, support
from tests.support.golden import beside

TABLES = beside(__file__)

NAMES = TABLES["names"]
"""As GPU feature discovery, GKE and CoreWeave label nodes."""
OTHERS = (
    "NVIDIA-GH200-480GB GH200_480GB NVIDIA-H20 NVIDIA-H800 NVIDIA-H100-80C NVIDIA-H100XM-80C NVIDIA-B100 NVIDIA-GB10 "
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition NVIDIA-A100-SXM4-80GB NVIDIA-L40S Tesla-T4 nvidia-tesla-a100 H1000 "
    "NVIDIA-H100-NVL-PCIe NVIDIA-B200-NVL NVIDIA -"
)


@pytest.mark.parametrize("product", NAMES)
def test_a_supported_gpu_is_known_by_every_name_that_clusters_give_it(product: str) -> None:
    assert {name for name in NAMES[product].split() if products.product_class(name) != product} == set()


def test_every_class_has_parts_and_names_of_dra_and_only_superchips_fix_the_host() -> None:
    assert (products.product_class("NVIDIA H100 80GB HBM3"), products.product_class("NVIDIA GB300")) == (
        "H100",
        "GB300",
    )
    assert {row.product for row in products.PARTS} == set(products.PRODUCT_CLASSES)
    for row in products.PARTS:
        assert row.source
        assert 1.9 < row.fp8_flops / row.bf16_flops < 2.1
        assert (row.fp4_flops is None) == (row.compute < (10, 0))
        assert row.fp4_flops is None or row.fp4_flops >= 2 * row.fp8_flops
    assert {row.product for row in products.PARTS if row.host_arch == "arm64"} == {"GB200", "GB300"}


@pytest.mark.parametrize("label", [*OTHERS.split(), ""])
def test_other_gpus_are_not_taken_for_a_supported_one(label: str) -> None:
    assert products.product_class(label) is None


@pytest.mark.parametrize(("label", "name", "watts"), TABLES["power_limits"])
def test_two_parts_of_one_class_have_their_own_power_limit(label: str, name: str, watts: int) -> None:
    part = products.part(label)
    assert (part.name, part.power_limit_watts) == (name, watts)


@pytest.mark.parametrize(
    ("wanted", "label", "means"),
    TABLES["wanted"],
)  # fmt: skip
def test_a_product_is_asked_for_by_its_class_or_by_its_name(wanted: str, label: str | None, means: bool) -> None:
    assert products.names_product(wanted, label, products.product_class(label) if label else "H100") is means


@pytest.mark.parametrize(
    ("instance_type", "product"),
    TABLES["instance_types"],
)  # fmt: skip
def test_an_instance_type_names_the_gpu_that_its_cloud_builds_in(instance_type: str, product: str | None) -> None:
    assert products.product_of_instance_type(instance_type) == product


@pytest.mark.parametrize(
    ("compute", "native", "emulated"),
    [
        ((8, 0), {"bf16"}, set()),
        ((8, 9), {"bf16", "fp8_delayed", "fp8_current"}, set()),
        ((9, 0), {"bf16", "fp8_delayed", "fp8_current", "fp8_block"}, set()),
        ((10, 0), set(RECIPE_NAMES) - {"fp8_block"}, {"fp8_block"}),
        ((10, 3), set(RECIPE_NAMES) - {"fp8_block"}, {"fp8_block"}),
        ((12, 0), {"bf16", "fp8_delayed", "fp8_current"}, set()),
        ((7, 5), set(), set()),
    ],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_recipes_are_where_their_hardware_is(compute: tuple[int, int], native: set[str], emulated: set[str]) -> None:
    offered = recipes_for(compute)
    assert {name for name, how in offered if how == "native"} == native
    assert {name for name, how in offered if how == "emulated"} == emulated


def test_recipes_come_in_the_order_of_their_table_and_misfits_name_what_fits() -> None:
    assert tuple(RECIPES) == RECIPE_NAMES
    assert recipes_for((10, 0)) == tuple((name, support(name, (10, 0))) for name in RECIPE_NAMES)
    assert alignment_error("mxfp8", {"m": 64, "k": 48, "n": 100}) == (
        "mxfp8 needs dimensions that are multiples of 32, but k=48, n=100; use k=64, n=128, or leave mxfp8 out"
    )
    assert alignment_error("bf16", {"m": 3, "k": 5, "n": 7}) is None


@pytest.mark.parametrize(("recipe", "size", "fits"), TABLES["recipe_steps"])
def test_each_recipe_takes_multiples_of_its_own_step(recipe: str, size: int, fits: bool) -> None:
    assert (misaligned(recipe, {"m": 64, "k": size, "n": 128}) == ()) is fits  # type: ignore[arg-type]
