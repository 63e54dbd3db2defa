"""Which precision a GPU kernel multiplied in, read from its name by a table of rules; the first rule that fits decides.

A name is read by position, never by substring: `tst` (bf16) stands inside `qqtst` (FP8), `gemm` in quantisation
kernels, `E4M3` in NVFP4's scales. What no rule understands is `unknown`, and so is a name that a known family's grammar
does not explain: a wrong "FP4" would certify a precision that never ran. Pure; raises nothing, whatever the text.

Sources: tests/golden/kernel_names.json, CUTLASS' documentation of its names, Transformer Engine 2.20's kernels.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from precision_agent.precision import kernel_grammars as by

EMULATION_RULE = "te-block-to-mxfp8"
"""Fits the kernel with which Transformer Engine turns FP8 block scales into MXFP8's: block scaling is emulated."""


@dataclass(frozen=True, slots=True)
class Classified:
    """One kernel name, its class, and the rule that said so."""

    name: str
    kernel_class: by.KernelClass
    rule: str

    @property
    def of_a_gemm(self) -> bool:
        """Whether it multiplies, or may, or ends a library's GEMM, whose call isn't over before."""
        return self.kernel_class != "not_a_gemm" or self.rule in ("splitk-reduction", "cublaslt-epilogue")


@dataclass(frozen=True, slots=True)
class Rule:
    """Fits where `pattern` is found in `part` of the name (lower case); the class is fixed or read from the name.

    What multiplies nothing fits only a function whose name doesn't say that it does, but for `sure` patterns.
    """

    name: str
    part: Literal["head", "function", "full"]
    pattern: str
    read: by.KernelClass | Callable[[by.Named], by.KernelClass]
    sure: bool = False

    def fits(self, named: by.Named) -> bool:
        """Whether it decides what the name proves."""
        doubt = self.read == "not_a_gemm" and not self.sure and re.search(_MULTIPLIES, named.function)
        return not doubt and re.search(self.pattern, getattr(named, self.part)) is not None


_MULTIPLIES = (
    r"gemm|gemv|matmul|(?:^|_)(?:add)?(?:b?mm|mv)(?:_|$)|baddbmm|einsum|linear|mlp|ffn|convolution|"
    r"fused_moe|(?:^|_)(?:dot(?!_do_o)|\w*proj|fc\d?|lm_head|fused_dense)(?:_|$)"
)

RULES: tuple[Rule, ...] = (
    # Moves and talks.
    Rule("memory", "full", r"^\[?(?:cuda )?mem(?:cpy|set)(?:\d+_post)?\b", "not_a_gemm"),
    Rule("collective", "full", r"^nccl|^nvshmem|^(?!.*(?:gemm|matmul)).*(?:all_?reduce|all_?gather|reduce_?scatter|"
          r"all_?to_?all|userbuffers|ncclkernel|nccldevkernel|deep_ep::)", "not_a_gemm"),
    # Attention multiplies too, but no linear layer's weights.
    Rule("attention", "full", r"fmha|sdpa|flash_?attn|flash_?attention|flash_(?:fwd|bwd)|\bflash::|flash_fprop|"
          r"flash_bprop|attentionkernel|pagedkv|paged_attention|mqa_logits|unified_attention|(?:^|_)attn_(?:fwd|bwd)|"
          r"flash_?mla|attentionmla|\b(?:compute_dot_do_o|convert_dq_to_|lean_reduction_kernel|qkv_tma_setup)",
          "not_a_gemm"),
    # What surrounds a library's GEMM.
    Rule("splitk-reduction", "full", r"split_?k_?reduce|reduce_?split_?k", "not_a_gemm"),
    Rule("cublaslt-epilogue", "head", r"^cublaslt::epilogue", "not_a_gemm"),
    Rule("convolution", "full", r"implicit_?(?:convolve_)?s?gemm|winograd|convolve|conv[123]d|depthwise|"
          r"\d(?:fprop|dgrad|wgrad)_(?:optimized|analytic|fixed|few)", "not_a_gemm", sure=True),
    # Transformer Engine has no GEMM kernel of its own: cuBLAS and CUTLASS multiply for it.
    Rule(EMULATION_RULE, "function", r"^swizzle_block_scaling_\w*to_mxfp8", "not_a_gemm"),
    Rule("hadamard-transform", "function", r"^(?:group_|row_|col_)*rht_gemm_device(?:_|$)", "not_a_gemm", sure=True),
    Rule("hadamard", "function", r"hadamard", "not_a_gemm"),
    Rule("transformer-engine", "head", r"^transformer_engine::", "not_a_gemm"),
    Rule("te-without-namespace", "function", r"^(?:\w*zeroamaxkernel|d?gated_act_kernel|unary_(?:grad_)?kernel|"
         r"multi_(?:un)?padding_kernel|fused_qkv_rope_\w+|scaled_(?:gated|unary)_\w+|(?:group_)?reduce_dbias_kernel)$",
         "not_a_gemm"),
    Rule("te-triton", "function", r"^_?(?:row_id_map_pass_\d|(?:un)?permute(?:_bwd_with_merging_probs)?|triton_"
         r"permute_bwd|grouped_dbias|make_chunk_sort_map|sort_chunks_by_(?:map|idxs)|element_mul|zero_pad)_kernel$",
         "not_a_gemm"),
    # Libraries' GEMMs. Each reader returns `unknown` for what its grammar doesn't explain.
    Rule("cublas-nvjet", "full", r"^nvjet_", by.cublas_jet),
    Rule("cublas-xmma", "function", r"^[a-z0-9_]*?xmma_gemm_", by.xmma),
    Rule("cutlass3-library", "head", r"^cutlass3x_", by.cutlass3),
    Rule("trtllm-gen", "full", r"^b?(?:mm|gemm)_(?:mx)?(?:bfloat16|fp16|e[245]m[123]|fp32|int)", by.trtllm),
    Rule("deep-gemm", "head", r"^deep_gemm::|^sm\d+_(?:fp8|bf16)_\w*gemm_\w*impl$", by.deep_gemm),
    Rule("cutlass2-library", "function", r"^(?:cutlass|trt|ampere|volta|turing|maxwell|pascal|hopper|sm\d+)_\w*gemm",
          by.cutlass2),
    Rule("cublas-small", "head", r"^(?:internal::)?(?:gemv\w*|gemmsn_\w+|gemmk1_\w+|gemvx::kernel)$", by.small_gemm),
    Rule("fp8-blockwise", "full", r"^cutlass::device_kernel<(?:vllm::cutlass_3x_gemm_fp8_blockwise<|"
          r"dpsk::grouped_gemm::cuda::(?:m_grouped_)?fp8_d?ptp128c(?:_acc)?::gemmkernel\b)", "fp8_block"),
    Rule("cutlass-atom", "full", r"^cutlass::(?:device_kernel|kernel2?)<", by.cutlass_atom),
    Rule("triton-block-fp8", "function", r"^_w8a8_(?:block_fp8_matmul|triton_block_scaled_mm)(?:_unrolledx4)?$",
          "fp8_block"),
    # Everything else that surely multiplies nothing.
    Rule("cub", "head", r"^(?:at_cuda_detail::)?cub::", "not_a_gemm"),  # sorts, scans, selects
    Rule("gemm-preparation", "function", r"^_*(?:setup|get|prepare)_\w*gemm|act_quant_k_grouped_deepgemm_kernel$|"
          r"(?:quant\w*|cast|swizzle\w*|transpose|pack\w*|pad\w*)_for_\w*gemm|"
          r"(?:^|_)(?:quanti[sz]e|cast|swizzle)_(?:\w+_)?gemm_(?:swizzled|inputs?|operands?|scales)(?:_|$)",
          "not_a_gemm", sure=True),
    Rule("quantisation", "function", r"quanti[sz](?!ed)|"
          r"(?:^|_)(?:(?:de)?quant|cast|cvt|unswizzle|swizzle|amax|transpose|compute_\w*scale)(?=_|\d|$)|"
          r"^_?to_(?:mxfp8|nvfp4|fp8)_|fp8_per_group_\w+_scales|^mx_blocked_layout_", "not_a_gemm"),
    # Inductor names kernels after all operators in and around them; what works point by point is no product.
    Rule("inductor-pointwise", "function", r"^triton_(?:poi|for|foreach)_", "not_a_gemm", sure=True),
    Rule("inductor-reduction", "function", r"^triton_(?:red|per)_", "not_a_gemm"),
    Rule("pytorch-native", "head", rf"^at::native::(?!.*(?:{_MULTIPLIES}))", "not_a_gemm"),
    Rule("framework", "function", r"rms_?norm|layer_?norm|softmax|elementwise|"
          r"multi_tensor_apply|rotary|embedding|dropout|cross_entropy|(?:^|_)adamw?_|topk|cat_?array|reduce_kernel|"
          r"attention|(?:silu|gelu|swiglu|act)_and_mul|swiglu_(?:forward|backward)|nchwtonhwc|nhwctonchw|"
          r"reshape_and_cache|routingindices|^(?:ln_(?:fwd|bwd)_|fused_rope_|moe_(?:un)?permute)", "not_a_gemm"),
)  # fmt: skip


@lru_cache(maxsize=4096)
def classify(name: str) -> Classified:
    """The class of one kernel name as a profiler prints it, and the rule's name (`none` where no rule fits)."""
    named = by.Named.of(name)
    for rule in RULES:
        if rule.fits(named):
            return Classified(name, rule.read if isinstance(rule.read, str) else rule.read(named), rule.name)
    return Classified(name, "unknown", "none")


def share_by_class(kernels: Iterable[tuple[str, float]]) -> dict[by.KernelClass, float]:
    """Share of the GEMMs' time in each class, from (name, seconds) of one profiled step; empty without any GEMM.

    `not_a_gemm` is left out. `unknown` stays in the total: it may have been a GEMM, so that a share is never too high.
    Raises ValueError for negative or non-finite seconds.
    """
    seconds: dict[by.KernelClass, float] = {}
    for name, spent in kernels:
        if not 0 <= spent < float("inf"):
            raise ValueError(f"kernel {name[:80]!r}: {spent} is no duration in seconds")
        kernel_class = classify(name).kernel_class
        if kernel_class != "not_a_gemm":
            seconds[kernel_class] = seconds.get(kernel_class, 0.0) + spent
    total = sum(seconds.values())
    return {key: value / total for key, value in sorted(seconds.items())} if total > 0 else {}


def emulation_seen(names: Iterable[str]) -> bool:
    """Whether Transformer Engine turned FP8 block scales into MXFP8's, as it does on Blackwell."""
    return any(classify(name).rule == EMULATION_RULE for name in names)
