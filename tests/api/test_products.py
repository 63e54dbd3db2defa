"""Which hardware a name means, what each part can do, and which recipes run where."""

import pytest

from precision_api.facts import products
from precision_api.facts.recipes import RECIPE_NAMES, RECIPES, alignment_error, misaligned, recipes_for, support

NAMES = {
    "H100": "NVIDIA-H100-80GB-HBM3 NVIDIA-H100-PCIe NVIDIA-H100-NVL NVIDIA-H100-80GB-HBM3-SHARED "
    "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb NVIDIA-H100-80GB-HBM3-MIG-1g.10gb.me-SHARED NVIDIA-H100-80GB-HBM3-MIG-INVALID "
    "nvidia-h100-80gb nvidia-h100-mega-80gb H100_NVLINK_80GB H100_PCIE_80GB",
    "H200": "NVIDIA-H200 NVIDIA-H200-NVL nvidia-h200-141gb H200",
    "B200": "NVIDIA-B200 nvidia-b200",
    "B300": "NVIDIA-B300-SXM6-AC NVIDIA-B300-SXM6-PC",
    "GB200": "NVIDIA-GB200 nvidia-gb200",
    "GB300": "NVIDIA-GB300 nvidia-gb300",
}
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


@pytest.mark.parametrize(
    ("label", "name", "watts"),
    [
        ("NVIDIA-H100-80GB-HBM3", "H100 SXM", 700),
        ("NVIDIA-H100-NVL", "H100 NVL", 400),
        ("H100_PCIE_80GB", "H100 PCIe", 350),
        ("NVIDIA-H200-NVL", "H200 NVL", 600),
        ("NVIDIA-GB200-NVL72", "GB200", 1200),
    ],
)
def test_two_parts_of_one_class_have_their_own_power_limit(label: str, name: str, watts: int) -> None:
    part = products.part(label)
    assert (part.name, part.power_limit_watts) == (name, watts)


@pytest.mark.parametrize(
    ("wanted", "label", "means"),
    [
        ("H100", "NVIDIA-H100-80GB-HBM3", True), ("h100", "NVIDIA-H100-NVL", True), ("H100", None, True),
        ("H100-NVL", "NVIDIA-H100-NVL", True), ("NVIDIA H100 NVL", "NVIDIA-H100-NVL", True),
        ("H100-NVL", "NVIDIA-H100-80GB-HBM3", False), ("H100", "NVIDIA-H100-80C", False),
        ("NVIDIA-H100-80C", "NVIDIA-H100-80C", True), ("GH200", "NVIDIA-GH200-480GB", True),
        ("NVIDIA-GH200-480GB", "NVIDIA-GH200-480GB", True), ("GH200-480GB", "NVIDIA-GH200-480GB-SHARED", True),
        ("GH20", "NVIDIA-GH200-480GB", False), ("H200", "NVIDIA-GH200-480GB", False), ("GH200", None, False),
        ("RTX PRO 6000", "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", True), ("B100", "NVIDIA-B200", False),
    ],
)  # fmt: skip
def test_a_product_is_asked_for_by_its_class_or_by_its_name(wanted: str, label: str | None, means: bool) -> None:
    assert products.names_product(wanted, label, products.product_class(label) if label else "H100") is means


@pytest.mark.parametrize(
    ("instance_type", "product"),
    [
        ("p5.48xlarge", "H100"), ("p5en.48xlarge", "H200"), ("p6-b200.48xlarge", "B200"),
        ("p6e-gb200.36xlarge", "GB200"), ("a3-megagpu-8g", "H100"), ("a4x-highgpu-4g", "GB200"),
        ("Standard_ND96isr_H100_v5", "H100"), ("BM.GPU.GB300.4", "GB300"),
        ("p4d.24xlarge", None), ("m5.large", None), ("", None),
    ],
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


@pytest.mark.parametrize(
    ("recipe", "size", "fits"),
    [
        ("bf16", 7, True),
        ("fp8_current", 16, True),
        ("fp8_current", 24, False),
        ("mxfp8", 48, False),
        ("nvfp4", 48, True),
    ],
)
def test_each_recipe_takes_multiples_of_its_own_step(recipe: str, size: int, fits: bool) -> None:
    assert (misaligned(recipe, {"m": 64, "k": size, "n": 128}) == ()) is fits  # type: ignore[arg-type]
