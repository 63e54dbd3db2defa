"""Which precision a kernel name proves: real names with their evidence, and the ways in which a name misleads."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from precision_agent.precision import kernel_grammars, kernels
from precision_agent.run.cli import app
from tests.support.golden import FOLDER, beside

TABLES = beside(__file__)

SEEN: dict[str, Any] = json.loads((FOLDER / "kernel_names.json").read_text(encoding="utf-8"))
LOW = {"fp8", "fp8_block", "mxfp8", "nvfp4"}
KERNELS = [(row["name"], row["true_class"]) for row in SEEN["kernels"]]
NOT_FP8 = [name for name, true in KERNELS if true in ("bf16", "fp16", "tf32", "fp32")]
NOT_FP4 = [name for name, true in KERNELS if true not in ("nvfp4", "unknown")]
SQUARE = "128x256_128x6_2x2_2cta_h_bz"


@pytest.mark.parametrize(("name", "true"), KERNELS, ids=[name[:60] for name, _ in KERNELS])
def test_a_name_seen_in_public_gets_the_class_that_its_evidence_shows(name: str, true: str) -> None:
    assert kernels.classify(name).kernel_class == true


H100 = FOLDER.parents[1] / "benchmarks/results/h100/2026-11-26-97695a8d/quick-llama3-8b.json"
FUSED_EXPERTS = "kernel_cutlass_kernel_cudnngrouped_gemm_BlockScaledMoEGroupedGemmGluBiasKernel_object_at_0x2"
"""cuDNN's experts with their activation, which Transformer Engine takes with NVTE_CUTEDSL_FUSED_GROUPED_MLP=1 alone."""
PUBLISHED = SEEN["profiles"] | {
    "Llama 3 8B on an H100, Transformer Engine 2.20, four recipes": [
        (seen["name"], seen["seconds"])
        for recipe in json.loads(H100.read_text(encoding="utf-8"))["recipes"]
        for seen in recipe["verification"]["kernels"]
    ]
}


@pytest.mark.parametrize("profile", PUBLISHED)
def test_at_most_one_percent_of_a_published_profiles_time_is_unknown(profile: str) -> None:
    rows = PUBLISHED[profile]
    unknown = [(name, spent) for name, spent in rows if kernels.classify(name).kernel_class == "unknown"]
    gap = 0.2 if FUSED_EXPERTS in dict(rows) else 0.0  # its name tells no format: docs/measurement.md says so
    assert sum(spent for _, spent in unknown) <= (0.01 + gap) * sum(spent for _, spent in rows), unknown


def test_the_classes_are_those_of_the_reference() -> None:
    assert SEEN["classes"] == list(get_args(kernel_grammars.KernelClass))


BY_POSITION = [*SEEN["by_position"], ["cutlass3x_sm100_" + "gemm_block_scaled_" * 20_000, "unknown", "and at once"]]


@pytest.mark.parametrize("row", BY_POSITION, ids=lambda row: row[0][:70])
def test_a_name_is_read_by_position_and_doubt_is_unknown(row: list[str]) -> None:
    assert kernels.classify(row[0]).kernel_class == row[1]


AROUND = ["nccl_", "all_reduce_", "flash_attn_", "hadamard_", "transformer_engine::", "split_k_reduce_", "quantize_",
          "triton_red_fused_", "triton_per_fused_", "at::native::", "rmsnorm_", "swiglu_forward_"]  # fmt: skip
MULTIPLIES = [
    *("grouped_gemm_kernel", "matmul_glu", "mm_", "linear", "addmm_0", "addmv_relu_1", "baddbmm_2", "dot_kernel"),
    *("convolution_3", "fused_moe_quant", "qkv_proj", "grouped_fc1_bias", "lm_head", "fused_dense"),
]


@pytest.mark.parametrize(("around", "word"), [*product(AROUND, MULTIPLIES)])
def test_what_says_that_it_multiplies_passes_for_nothing_else(around: str, word: str) -> None:
    assert kernels.classify(f"{around}kernel").kernel_class == "not_a_gemm"
    assert kernels.classify(f"{around}{word}").kernel_class == "unknown"


PLAIN = "MainloopSm90TmaGmmaWarpSpecialized<4>"
BLOCKS = "MainloopSm90TmaGmmaWarpSpecializedBlockScalingFP8<4>"


def template(instruction: str, mainloop: str = PLAIN) -> str:
    """As CUTLASS 3's kernels are printed, much shortened; E stands for cutlass::float_e."""
    atom = re.sub(r"\bE(\w+_t)", r"cutlass::float_e\1", instruction).replace("UE", "cutlass::float_ue")
    collective = f"cutlass::gemm::collective::CollectiveMma<cutlass::gemm::{mainloop}, cute::MMA_Atom<cute::{atom}>>"
    return f"void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<{collective}>>(Params)"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (template("SM90_64x128x16_F32BF16BF16_SS<0, 0>"), "bf16"),
        (template("SM90_64x128x16_F32F16F16_SS<0, 0>"), "fp16"),
        (template("SM90_64x128x8_F32TF32TF32_SS_TN<>"), "tf32"),
        (template("SM90_64x128x32_F32E4M3E4M3_SS_TN<>"), "fp8"),
        (template("SM90_64x128x32_F32E5M2E4M3_RS_TN<>"), "fp8"),
        (template("SM90_64x128x32_F32E4M3E4M3_SS_TN<>", BLOCKS), "fp8_block"),
        (template("SM90_64x128x32_F32E4M3E4M3_SS_TN<>", "OtherPolicy"), "unknown"),
        (template("SM90_64x128x32_S32S8S8_SS_TN<>"), "unknown"),
        (template("SM100_MMA_F16BF16_2x1SM_SS<cutlass::bfloat16_t, cutlass::bfloat16_t, float>"), "bf16"),
        (template("SM100_MMA_MXF8F6F4_SS<E4m3_t, E4m3_t, float, UE8m0_t>"), "mxfp8"),
        (template("SM100_MMA_MXF8F6F4_SS<E4m3_t, E2m1_t, float, UE8m0_t>"), "unknown"),
        (template("SM100_MMA_MXF4_SS<E2m1_t, E2m1_t, float, UE4m3_t>"), "nvfp4"),
        (template("SM100_MMA_MXF4_SS<E2m1_t, E2m1_t, float, UE8m0_t>"), "unknown"),
        ("void cutlass::device_kernel<flash::enable_sm90<SM90_64x128x16_F32BF16BF16_SS<0, 0>>>(Params)", "not_a_gemm"),
    ],
    ids=lambda value: value[-60:],
)  # fmt: skip
def test_a_cutlass_template_is_read_by_its_multiply_instruction(name: str, expected: str) -> None:
    assert kernels.classify(name).kernel_class == expected


SUFFIXES = TABLES["suffixes"]


@given(st.sampled_from([*NOT_FP8, *NOT_FP4]), st.lists(st.sampled_from(SUFFIXES), max_size=4), st.text(max_size=10))
def test_what_follows_a_name_never_makes_it_fp4_nor_a_higher_precision_fp8(
    name: str, suffixes: list[str], before: str
) -> None:
    assert kernels.classify(before + name + "".join(suffixes)).kernel_class not in (
        LOW if name in NOT_FP8 else {"nvfp4"}
    )


LETTERS = "shtdqroic"
"""Types in cuBLAS' tags: fp32 fp16 bf16 fp64 e4m3 e5m2 e2m1 int8 complex."""
SCALES = ["", "_Avec32UE8M0_Bvec32UE8M0", "_Avec16UE4M3_Bvec16UE4M3", "_Avec128_Bblk128", "_Ablk128_Bvec128"]
OUTPUTS = [LETTERS[a] + LETTERS[b] + LETTERS[(a + b) % 9] for a, b in product(range(9), repeat=2)]
"""Any two letters at any two of the last three places (a Latin square)."""


@pytest.mark.parametrize("scales", SCALES)
def test_a_cublas_tag_is_fp4_or_fp8_only_by_both_of_its_operands(scales: str) -> None:
    for tag in ("".join(parts) for parts in product(LETTERS, LETTERS, OUTPUTS)):
        kernel_class = kernels.classify(f"nvjet_sm100_{tag}_{SQUARE}{scales}_TNT").kernel_class
        if kernel_class == "nvfp4":
            assert tag[:2] == "oo", tag
        elif kernel_class in LOW:
            assert set(tag[:2]) <= {"q", "r"}, tag
        elif tag[:2] in ("tt", "hh") and not scales:
            assert kernel_class == {"tt": "bf16", "hh": "fp16"}[tag[:2]], tag


def test_a_cublas_tag_of_three_letters_is_never_fp4_or_fp8() -> None:
    names = {f"nvjet_{''.join(letters)}_{SQUARE}_TNT" for letters in product(LETTERS, repeat=3)}
    assert not {name for name in names if kernels.classify(name).kernel_class in LOW}


TYPES = ["bf16", "f16", "f32", "tf32", "e4m3", "e5m2", "f8", "f4", "e2m1", "ue4m3xf4", "ue8m0xe4m3", "f32xe4m3", "i8"]


@pytest.mark.parametrize(("a", "b"), [*product(TYPES, repeat=2)], ids=lambda value: value)
def test_a_librarys_gemm_with_one_wide_operand_is_never_fp4_or_fp8(a: str, b: str) -> None:
    names = (
        f"cutlass3x_sm100_tensorop_s128x256x32gemm_{a}_{b}_f32_bf16_bf16_128x256x128",
        f"cutlass3x_sm100_bstensorop_s128x256x64gemm_block_scaled_{a}_{b}_f32_bf16_bf16_128x256x256",
        f"sm90_xmma_gemm_{a}bf16_{b}f32_f32_tn_n_tilesize128x128x128",
    )
    for name in names:
        kernel_class = kernels.classify(name).kernel_class
        if {a, b} & {"bf16", "f16", "f32", "tf32", "i8"}:
            assert kernel_class not in LOW, name
        if kernel_class == "nvfp4":
            assert {a, b} <= {"ue4m3xf4", "ue4m3xe2m1"}, name


@given(st.sampled_from(NOT_FP8), st.data())
def test_no_slip_of_one_letter_makes_a_higher_precision_name_fp8_or_fp4(name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(name)))
    new = data.draw(st.text("abcdefghijklmnopqrstuvwxyz0123456789_<>:,. ", max_size=1))
    gone = data.draw(st.integers(0, 1))
    assert kernels.classify(name[:at] + new + name[at + gone :]).kernel_class not in LOW


@given(st.sampled_from([*NOT_FP8, *NOT_FP4]), st.sampled_from(["", "...", "…", "_"]), st.data())
def test_no_cut_of_a_name_makes_it_fp4_nor_a_higher_precision_fp8(name: str, end: str, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(name)))
    last = data.draw(st.integers(first, len(name)))
    for cut in (name[:last], name[first:last], name[first:last] + end):
        assert kernels.classify(cut).kernel_class not in (LOW if name in NOT_FP8 else {"nvfp4"})


QUANTISES = TABLES["quantises"]


@given(
    st.sampled_from(QUANTISES),
    st.sampled_from(["", "transformer_engine::", "void transformer_engine::(anonymous namespace)::", "vllm::"]),
    st.sampled_from(["<__nv_fp8_e4m3, 128>", "<cutlass::float_e2m1_t>", "<__nv_bfloat16>", "<1, true>", ""]),
    st.sampled_from(["", "(int)", "(__nv_fp8_e4m3*, float)", "_nvfp4", "_mxfp8"]),
)
def test_quantisation_with_gemm_in_its_name_is_not_a_gemm(function: str, before: str, types: str, after: str) -> None:
    assert kernels.classify(f"{before}{function}{types}{after}").kernel_class == "not_a_gemm"


PIECES = TABLES["pieces"]


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
def test_any_text_gets_a_class_and_the_name_of_a_rule(text: str) -> None:
    classified = kernels.classify(text)
    assert classified.kernel_class in get_args(kernel_grammars.KernelClass)
    assert classified.rule in {"none", *(rule.name for rule in kernels.RULES)}
    assert (classified.rule != "none") or classified.kernel_class == "unknown"


def test_shares_are_of_gemm_time_with_the_unknown_in_the_total_and_what_is_no_duration_is_refused() -> None:
    step = [
        ("nvjet_sm100_ootst_128x128_TNT", 0.6),
        ("nvjet_tst_64x64_TNT", 0.3),
        ("some_kernel", 0.1),
        ("row_col_rht_gemm_device", 5.0),
    ]
    assert kernels.share_by_class(step) == pytest.approx({"bf16": 0.3, "nvfp4": 0.6, "unknown": 0.1})
    assert kernels.share_by_class([("Memset (Device)", 1.0), ("nvjet_tst_64x64_TNT", 0.0)]) == {}
    for seconds in (-1e-9, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="no duration"):
            kernels.share_by_class([("nvjet_tst_64x64_TNT", seconds)])


def test_emulation_shows_by_the_kernel_that_turns_block_scales_into_mxfp8() -> None:
    function = "swizzle_block_scaling_2d_to_mxfp8_scaling_factors_kernel"
    kernel = f"void transformer_engine::(anonymous namespace)::{function}<1>(int)"
    assert kernels.classify(kernel).rule == kernels.EMULATION_RULE
    assert kernels.emulation_seen([kernel])
    assert not kernels.emulation_seen(["swizzle_row_scaling_kernel", "quantize_mxfp8_kernel"])


def run(*arguments: str, given: bytes = b"") -> Result:
    return CliRunner().invoke(app, ["classify-kernels", *arguments], input=given)


def test_the_command_prints_json_rows_in_the_order_of_the_file_or_a_table_of_stdin_and_names_a_file_that_lacks(
    tmp_path: Path,
) -> None:
    (tmp_path / "names").write_bytes(b"nvjet_tst_64x64_TNT\r\n\n  Memset (Device)\nwhat\xff is this")
    done = run(str(tmp_path / "names"), "-o", "json")
    assert done.exit_code == 0
    assert json.loads(done.stdout) == [
        {"name": "nvjet_tst_64x64_TNT", "class": "bf16", "rule": "cublas-nvjet"},
        {"name": "Memset (Device)", "class": "not_a_gemm", "rule": "memory"},
        {"name": "what\N{REPLACEMENT CHARACTER} is this", "class": "unknown", "rule": "none"},
    ]
    assert [line.split() for line in run("-", given=b"nvjet_hsh_64x64_TNT\n").stdout.splitlines()] == [
        ["CLASS", "RULE", "NAME"],
        ["fp16", "cublas-nvjet", "nvjet_hsh_64x64_TNT"],
    ]
    done = run("/nowhere/names")
    assert done.exit_code == 2
    assert "reading kernel names" in done.stderr
