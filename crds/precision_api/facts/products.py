"""The supported GPU products as one table, and how the labels of real clusters name them.

A product class (H100) is what a profile selects; a part (H100 SXM, H100 NVL) is what has a power limit and peaks: two
parts of one class are never held against one peak. Names come from GPU feature discovery (NVIDIA-H100-80GB-HBM3), DRA
(NVIDIA H100 80GB HBM3), GKE (nvidia-h100-mega-80gb) and CoreWeave (H100_NVLINK_80GB): the same words, joined otherwise.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

from precision_api.facts.recipes import Compute, Format

ProductClass = Literal["GB200", "GB300", "H100", "H200", "B200", "B300"]
PRODUCT_CLASSES: tuple[ProductClass, ...] = get_args(ProductClass)
Form = Literal["SXM", "PCIe", "NVL", "Grace"]
"""How the GPU is built in: decides power limit and clocks within a class. Grace: superchip with a Grace CPU."""


@dataclass(frozen=True)
class Part:
    """One GPU part. Peaks are dense (no 2:4 sparsity), of one GPU, in FLOP/s; None: no hardware for the format."""

    product: ProductClass
    form: Form
    compute: Compute
    host_arch: Literal["arm64"] | None
    """kubernetes.io/arch of every host that this part is built into; None where hosts differ."""
    power_limit_watts: int
    """Factory power limit of one GPU. The enforced limit of a real GPU may be lower: it is read from NVML."""
    memory_gb: int
    """Size as the vendor prints it; vendors mix 1e9 and 2^30 bytes, so never compute with it: read gpu.memory."""
    bf16_flops: float
    fp8_flops: float
    fp4_flops: float | None
    source: str

    @property
    def name(self) -> str:
        """The name under which a peak or a baseline of this part is quoted, for example "H100 NVL"."""
        return self.product if self.form == "Grace" else f"{self.product} {self.form}"

    @property
    def peaks(self) -> Mapping[Format, float | None]:
        """The dense peaks by format, FLOP/s."""
        return {"bf16": self.bf16_flops, "fp8": self.fp8_flops, "fp4": self.fp4_flops}


_H100 = "NVIDIA H100 datasheet, Tensor Core rows (with sparsity) halved"
_H200 = "NVIDIA H200 datasheet, Tensor Core rows (with sparsity) halved"
_HGX = "nvidia.com/en-us/data-center/hgx, eight GPUs: rows with sparsity halved, FP4 as printed sparse | dense"
_NVL72 = "nvidia.com/en-us/data-center/{}-nvl72, 72 GPUs: rows with sparsity halved, FP4 as printed sparse | dense"

PARTS: tuple[Part, ...] = (
    Part("H100", "SXM", (9, 0), None, 700, 80, 989.4e12, 1978.9e12, None, _H100),
    Part("H100", "PCIe", (9, 0), None, 350, 80, 756e12, 1513e12, None, _H100),
    Part("H100", "NVL", (9, 0), None, 400, 94, 835.5e12, 1670.5e12, None, _H100),
    Part("H200", "SXM", (9, 0), None, 700, 141, 989.4e12, 1978.9e12, None, _H200),
    Part("H200", "NVL", (9, 0), None, 600, 141, 835.5e12, 1670.5e12, None, _H200),
    Part("B200", "SXM", (10, 0), None, 1000, 180, 2.25e15, 4.5e15, 9e15, f"{_HGX}; 1000 W: NVIDIA HGX B200 datasheet"),
    Part("B300", "SXM", (10, 3), None, 1100, 288, 2.25e15, 4.5e15, 13.5e15, f"{_HGX}; 1100 W: NVIDIA HGX B300"),
    Part("GB200", "Grace", (10, 0), "arm64", 1200, 186, 2.5e15, 5e15, 10e15, _NVL72.format("gb200")),
    Part("GB300", "Grace", (10, 3), "arm64", 1400, 279, 2.5e15, 5e15, 15e15, _NVL72.format("gb300")),
)

# Words that may follow the model without changing what it is. Anything else (80C of a vGPU, 480GB of GH200 behind
# another model word, Server, Edition) makes the name one that this table does not know.
_PLAIN_WORD = re.compile(r"\d{2,3}gb?|hbm\d\w?|mega|nvlink|sxm\d?|ac|pc|nvl\d{1,2}")
_FORM_WORDS: Mapping[str, Form] = {"nvl": "NVL", "pcie": "PCIe"}

# The last resort, used only where no label names the GPU: clouds fix the GPU of an instance type.
# Sources: the instance type lists of AWS EC2 (p5, p6), Google Compute Engine (a3, a4), Azure (ND, NC v5 and v6),
# OCI (BM.GPU) and CoreWeave (gb200-4x). No type matches two patterns.
_INSTANCE_TYPES: tuple[tuple[str, ProductClass], ...] = (
    (r"p5\.\d+xlarge|a3-(high|mega|edge)gpu-\d+g(-.+)?|standard_n[dc]c?\d+\w*_h100_v5|bm\.gpu\.h100\.\d+", "H100"),
    (r"p5en?\.\d+xlarge|a3-ultragpu-\d+g(-.+)?|standard_nd\d+\w*_h200_v5|bm\.gpu\.h200\.\d+", "H200"),
    (r"p6-b200\.\d+xlarge|a4-highgpu-\d+g(-.+)?|bm\.gpu\.b200\.\d+|b200-8x", "B200"),
    (r"p6-b300\.\d+xlarge|bm\.gpu\.b300\.\d+|b300-8x", "B300"),
    (r"p6e-gb200\.\d+xlarge|a4x-highgpu-\d+g(-.+)?|standard_nd\d+\w*_gb200_v6|bm\.gpu\.gb200\.\d+|gb200-4x", "GB200"),
    (r"p6e-gb300\.\d+xlarge|a4x-maxgpu-\d+g(-.+)?|standard_nd\d+\w*_gb300_v6|bm\.gpu\.gb300\.\d+|gb300-4x", "GB300"),
)
_INSTANCE_PATTERNS = tuple((re.compile(pattern), product) for pattern, product in _INSTANCE_TYPES)


def plain_name(label: str) -> str:
    """`label` in lower case with dashes, without the vendor and the suffixes for sharing and MIG."""
    name = re.sub(r"[\s_-]+", "-", label.strip().lower()).strip("-")
    name = re.sub(r"-mig-[0-9a-z.+-]+$", "", name.removesuffix("-shared"))
    return name.removesuffix("-shared").removeprefix("nvidia-")


@lru_cache(maxsize=1024)
def part(label: str) -> Part | None:
    """The part that a label's value or a DRA productName names; None when it is none of the supported products.

    Strict on purpose: GH200, H20, H800, B100, GB10, RTX PRO 6000 Blackwell and virtual GPUs are other hardware. A name
    without a form (H200, nvidia-h100-80gb) is the SXM part: that is how the driver names those.
    """
    model, *words = plain_name(label).split("-")
    forms = {_FORM_WORDS[word] for word in words if word in _FORM_WORDS}
    if any(word not in _FORM_WORDS and not _PLAIN_WORD.fullmatch(word) for word in words) or len(forms) > 1:
        return None
    form = next(iter(forms), None)
    rows = [row for row in PARTS if row.product.lower() == model]
    if form is None or (rows and rows[0].form == "Grace"):
        return rows[0] if rows else None
    return next((row for row in rows if row.form == form), None)


def product_class(label: str) -> ProductClass | None:
    """The class (GB200, H100 ...) that a label's value or a DRA productName names; None when it is not supported."""
    product = part(label)
    return product.product if product else None


def names_product(wanted: str, label: str | None, product: ProductClass | None) -> bool:
    """Whether `wanted`, as a profile has it, means the GPU that is labelled `label` and of class `product`.

    The name of a class (H100) means that class alone. Any other text is a GPU's name, as labelled or without the vendor
    (NVIDIA-GH200-480GB, GH200-480GB, H100-NVL), or the first words of the name of a GPU that is of no known class.
    """
    name = plain_name(wanted)
    listed = next((gpu_class for gpu_class in PRODUCT_CLASSES if gpu_class.lower() == name), None)
    if listed is not None or label is None:
        return listed is not None and listed == product
    here = plain_name(label)
    return bool(name) and (here == name or (product is None and here.startswith(f"{name}-")))


def part_of_class(product: ProductClass) -> Part:
    """The part that stands for a class when nothing more is known: the first one in the table."""
    return next(row for row in PARTS if row.product == product)


def product_of_instance_type(instance_type: str) -> ProductClass | None:
    """The class that a cloud's instance type is built with; None when the type is not known to have one of them."""
    name = instance_type.strip().lower()
    return next((product for pattern, product in _INSTANCE_PATTERNS if pattern.fullmatch(name)), None)


def is_mig_name(label: str) -> bool:
    """Whether a product label says that its GPUs are MIG slices (or that MIG is set up inconsistently)."""
    return bool(re.search(r"-mig-", label.lower().replace(" ", "-")))


def is_shared_name(label: str) -> bool:
    """Whether a product label says that its GPUs are shared between containers."""
    return label.strip().lower().endswith("-shared")
