"""The grammars of the libraries' GEMM names: each reads operand types by position, and says `unknown` when in doubt.

Output and accumulator types stand in the names too, beside the operands': they never decide.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

KernelClass = Literal["bf16", "fp16", "tf32", "fp32", "fp8", "fp8_block", "mxfp8", "nvfp4", "not_a_gemm", "unknown"]

_CUT = re.compile(r"\.\.\.|…|_$")
"""A name that was shortened where it was printed."""


@dataclass(frozen=True, slots=True)
class Named:
    """A kernel name in lower case: `full`; `head`, before template and arguments; `function`, its last component.

    CUTLASS' wrappers `cutlass::Kernel2<NAME>(...)` count as NAME; `void`, `std::enable_if` and unnamed namespaces say
    nothing.
    """

    full: str
    head: str
    function: str

    @staticmethod
    def of(name: str) -> "Named":
        full = re.sub(r"^(?:void |std::enable_if<.*?>::type )+", "", name.strip().lower())
        for unnamed in ("(anonymous namespace)::", "<unnamed>::", "_global__n__::"):
            full = full.replace(unnamed, "")
        wrapped = re.match(r"cutlass\w*::(?:device_)?kernel2?<\s*(cutlass[a-z0-9]*_\w+)\s*>", full)
        head = wrapped.group(1) if wrapped else _unmangled(full) or re.split(r"[<(\s]", full, maxsplit=1)[0]
        return Named(full, head, head.rsplit("::", 1)[-1])


def _unmangled(name: str) -> str:
    """`a::b` of `_ZN1a1bI...`: torch's profiler leaves names of over 1,024 letters mangled; empty of others."""
    parts, rest = list[str](), name[3:] if name.startswith("_zn") else ""
    while length := re.match(r"\d{1,4}", rest):
        part, rest = rest[length.end() :][: int(length[0])], rest[length.end() + int(length[0]) :]
        parts += [part] * (not part.startswith("_global__n_"))
    return "::".join(parts)


_PLAIN: Mapping[str, KernelClass] = {
    "bf16": "bf16",
    "f16": "fp16",
    "fp16": "fp16",
    "tf32": "tf32",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "f8": "fp8",
}
"""Operand types whose name alone gives the class; f32 doesn't: tensor cores may round it to tf32 or bf16."""


def cublas_jet(named: Named) -> KernelClass:
    """cuBLAS 12.5+: `nvjet_[smNN_]TAG_...[_AvecNN..._BvecNN...]_LAYOUT`.

    TAG is `XcD` (both operands X) or `ABCcD`, one letter a type: s h t q r o = fp32 fp16 bf16 e4m3 e5m2 e2m1.
    """
    match = re.match(r"nvjet_(?:sm\d+[a-z]?_)?([a-z]+)(_.*)?$", named.full)
    if not match or len(match.group(1)) not in (3, 5):
        return "unknown"
    tag, rest = match.group(1), match.group(2) or ""
    operands = tag[:2] if len(tag) == 5 else tag[0] * 2
    scales = set(re.findall(r"_[ab]((?:vec|blk)\d+(?:ue8m0|ue4m3)?)(?=_|$)", rest))
    if len(re.findall(r"_[ab](?:vec|blk)", rest)) != len(re.findall(r"_[ab](?:vec|blk)\d+(?:ue\dm\d)?(?=_|$)", rest)):
        return "unknown"
    return _scaled(len(tag), operands, scales, rest) if scales else _unscaled(len(tag), operands, rest)


def _unscaled(length: int, operands: str, rest: str) -> KernelClass:
    """Without block scales. A name that was cut may have lost them: then FP8's kind can't be told."""
    if operands == "ss":
        return "tf32" if "tf32" in rest.split("_") else "unknown"
    if operands in ("tt", "hh"):
        return "bf16" if operands == "tt" else "fp16"
    if length != 5 or _CUT.search(rest):
        return "unknown"
    if operands == "oo":
        return "nvfp4"  # the only FP4 that cuBLASLt multiplies
    return "fp8" if set(operands) <= {"q", "r"} else "unknown"


def _scaled(length: int, operands: str, scales: set[str], rest: str) -> KernelClass:
    """With block scales; both operands must have the same kind (128x128 and 1x128 blocks mix)."""
    if length != 5:
        return "unknown"
    if operands == "oo":
        return "nvfp4" if scales == {"vec16ue4m3"} else "unknown"
    if not set(operands) <= {"q", "r"}:
        return "unknown"
    if scales == {"vec32ue8m0"}:
        return "mxfp8"
    return "fp8_block" if scales <= {"vec128", "blk128"} else "unknown"


_TYPE = r"(bf16|tf32|f16|f32|f64|e4m3|e5m2|[su]?i?8|i32|s32)"
_XMMA: Mapping[tuple[str, str], KernelClass] = {
    ("bf16", "bf16"): "bf16",
    ("f16", "f16"): "fp16",
    ("f32", "tf32"): "tf32",
    ("tf32", "tf32"): "tf32",
    ("f32", "f32"): "fp32",
    **{(a, b): "fp8" for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")},
}
"""(type in memory, type multiplied) -> class."""


def xmma(named: Named) -> KernelClass:
    """`smNN_xmma_gemm_<in><out>_<multiplied><accumulated>_<..>_LAYOUT_...`; the second group may be cut off."""
    groups = named.function.split("xmma_gemm_", 1)[1].split("_")
    first = re.fullmatch(_TYPE + r"(?:" + _TYPE + r")?", groups[0].rstrip(".…"))
    if not first:
        return "unknown"
    if len(groups) == 1 or not groups[1].strip(".…"):
        return "unknown" if first.group(1) in ("f32", "tf32") else _PLAIN.get(first.group(1), "unknown")
    second = re.fullmatch(_TYPE + _TYPE, groups[1].rstrip(".…"))
    return _XMMA.get((first.group(1), second.group(1)), "unknown") if second else "unknown"


_UNTYPED: Mapping[str, KernelClass] = {"1688": "tf32", "": "fp32"}
"""What an `s...gemm` without a type beside it multiplies, by its instruction's shape (none: no tensor core)."""


def cutlass2(named: Named) -> KernelClass:
    """`cutlass_80_tensorop_[OUT_]s16816[MATH]gemm_[relu_][IN_]TILE...` and cuBLAS' `ampere_[OUT_]s16816gemm_[IN_]...`.

    `s1688gemm` is tf32 only where no type stands beside it; half accumulation (`h16816gemm`) takes only fp16.
    """
    words = [word for word in named.function.split("_") if word not in ("relu", "wmma", "grouped")]
    at = next((i for i, word in enumerate(words) if re.fullmatch(r"[a-z]\d*[a-z0-9]*?gemm", word)), None)
    if at is None:
        return "unknown"
    made = re.fullmatch(r"([a-z])(\d*)(tf32|bf16|f16|fast\w*|)gemm", words[at])
    beside = (*words[max(at - 1, 0) : at], *words[at + 1 : at + 2])
    if made is None or any(re.fullmatch(r"fp?32|f64|s8|u8|s4|b1", word) for word in beside):
        return "unknown"
    types = [_PLAIN[word] for word in beside if word in _PLAIN]
    return _cutlass2(made.group(1), made.group(2), made.group(3), types, words[at + 1 : at + 2])


def _cutlass2(letter: str, shape: str, math: str, types: list[KernelClass], after: list[str]) -> KernelClass:
    operand = _PLAIN.get(after[0]) if after else None
    if math:
        return "tf32" if (letter, math) == ("s", "tf32") and set(types) <= {"tf32"} else "unknown"
    if letter == "h":
        return "fp16" if set(types) <= {"fp16"} else "unknown"
    if letter != "s":
        return "unknown"
    if operand == "fp8" and shape == "16832":
        return "fp8"  # the type before the word is the output's
    if len(set(types)) == 1 and types[0] != "fp8":
        return types[0]
    return "unknown" if types else _UNTYPED.get(shape, "unknown")


_CUTLASS3 = re.compile(r"cutlass3x_sm\d+[a-z]?_(\w+?)_[a-z]?[\dx]*(tf32)?gemm_(?:grouped_)?(\w+)")


def cutlass3(named: Named) -> KernelClass:
    """`cutlass3x_smNN_[bs](tensorop|simt)_<shape>[MATH]gemm_[block_scaled_]<A>_<B>_<acc>_<C>_<D>_TILE...`.

    Block-scaled operands are written SCALExTYPE: `ue4m3xf4` (NVFP4), `ue8m0xe4m3` (MXFP8), `f32xe4m3` (128-blocks).
    """
    scaled = re.match(r"cutlass3x_.*_block_scaled_([a-z0-9]+)_([a-z0-9]+)(?:_|$)", named.head)
    if scaled:
        if {*scaled.groups()} <= {"ue4m3xf4", "ue4m3xe2m1"}:
            return "nvfp4"
        return "mxfp8" if {*scaled.groups()} <= {"ue8m0xe4m3", "ue8m0xe5m2", "ue8m0xf8"} else "unknown"
    match = _CUTLASS3.match(named.head)
    if not match:
        return "unknown"
    unit, math, rest = match.groups()
    operands = rest.split("_")[:2]
    if len(operands) < 2:
        return "unknown"
    if all(re.fullmatch(r"(?:\d+x\d+)?f32x(?:e4m3|e5m2|f8)", operand) for operand in operands):
        return "fp8_block"
    if operands == ["f32", "f32"]:
        return "tf32" if math else "fp32" if unit == "simt" else "unknown"
    classes = {_PLAIN.get(operand, "unknown") for operand in operands}
    return classes.pop() if len(classes) == 1 and unit == "tensorop" and not math else "unknown"


_TRTLLM_TYPE = r"(bfloat16|fp16|mxe4m3|mxe2m1|mxint4|e4m3|e2m1|int8)"
_TRTLLM: Mapping[str, KernelClass] = {"bfloat16": "bf16", "fp16": "fp16", "mxe4m3": "mxfp8", "e2m1": "nvfp4"}


def trtllm(named: Named) -> KernelClass:
    """TensorRT-LLM's generated `bmm_<C>_<A><B>_Fp32_..._[dsFp8_]..._smNN`; `Mx` marks 32-blocks, `dsFp8` 128-blocks."""
    words = named.full.split("_")
    pair = re.fullmatch(_TRTLLM_TYPE + _TRTLLM_TYPE, words[2]) if len(words) > 2 else None
    if pair is None or pair.group(1) != pair.group(2) or words[3:4] not in ([], ["fp32"]):
        return "unknown"
    if pair.group(1) == "e4m3":
        if "dsfp8" in words:
            return "fp8_block"
        return "fp8" if re.fullmatch(r"sm\d+[a-z]?", words[-1]) else "unknown"
    return _TRTLLM.get(pair.group(1), "unknown")


def deep_gemm(named: Named) -> KernelClass:
    """DeepGEMM: its FP8 GEMMs have 128-block scales; `fp8_fp4` mixes formats; the rest prepares scales."""
    function = re.sub(r"^sm(?:\d+|xx)_", "", named.function)
    if re.match(r"fp8_(?:wgrad_)?gemm_(?:kernel|1d[12]d)", function):
        return "fp8_block"
    if re.match(r"bf16_gemm_(?:impl|kernel)|bf16_gemm$", function):
        return "bf16"
    return "not_a_gemm" if re.match(r"transpose|get_mn_major|pack_", function) else "unknown"


_NO_OPERAND = frozenset({"int", "const", "bool", "long", "unsigned", "false", "true"})
_SMALL: Mapping[str, KernelClass] = {"float": "fp32", "__half": "fp16", "__nv_bfloat16": "bf16"}


def small_gemm(named: Named) -> KernelClass:
    """cuBLAS' matrix-vector and small kernels: the first type of the template is an operand's, its fellows agree."""
    template = named.full[len(named.head) :].split("cublasge", 1)[0]
    types = [word for word in re.findall(r"[a-z_]\w*", template) if word not in _NO_OPERAND]
    if not types or types[0] not in _SMALL:
        return "unknown"
    return _SMALL[types[0]] if set(types) <= {types[0], "float"} else "unknown"


_ATOM_OPERANDS: Mapping[str, KernelClass] = {
    "bf16bf16": "bf16",
    "f16f16": "fp16",
    "tf32tf32": "tf32",
    **{a + b: "fp8" for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")},
}
_FP8_T = r"cutlass::float_e(?:4m3|5m2)_t"
_ATOMS: tuple[tuple[str, KernelClass], ...] = (
    (r"sm100_mma_f16bf16\w*<cutlass::bfloat16_t, ?cutlass::bfloat16_t,", "bf16"),
    (r"sm100_mma_f16bf16\w*<cutlass::half_t, ?cutlass::half_t,", "fp16"),
    (rf"sm100_mma_f8f6f4\w*<{_FP8_T}, ?{_FP8_T},", "fp8"),
    (rf"sm1[02]0_mma_mxf8f6f4\w*<{_FP8_T}, ?{_FP8_T}, ?float, ?cutlass::float_ue8m0_t", "mxfp8"),
    (r"sm1[02]0_mma_mxf4\w*<cutlass::float_e2m1_t, ?cutlass::float_e2m1_t, ?float, ?cutlass::float_ue4m3_t", "nvfp4"),
)  # fmt: skip


def cutlass_atom(named: Named) -> KernelClass:
    """CUTLASS 3 kernels printed with their template: the multiply instruction's atom names its operands.

    FP8 with scaling in the main loop is 128-blocks; without the main loop's policy in the name FP8's kind is open.
    """
    kinds = {
        _ATOM_OPERANDS.get(operands, "unknown")
        for operands in re.findall(r"sm90_\d+x\d+x\d+_f(?:32|16)((?:t?f|bf|e)[a-z0-9]+?)_[sr]s", named.full)
    }
    kinds |= {kind for pattern, kind in _ATOMS if re.search(pattern, named.full)}
    if len(kinds) != 1:
        return "unknown"
    kind = kinds.pop()
    if kind != "fp8":
        return kind
    if re.search(r"mainloop\w*(?:blockscaling|blockwise|blockscaled|groupwise)", named.full):
        return "fp8_block"
    return "fp8" if "mainloopsm" in named.full else "unknown"
