"""Is a plain SwiGLU called a cast, and do names of cuDNN's fused experts tell MXFP8 from NVFP4 after their class?

On Blackwell Transformer Engine takes them for `te.ops` of grouped layers, with NVTE_CUTEDSL_FUSED_GROUPED_MLP=1. What
was seen of their names ends before the types, so they are `unknown` to `precision.kernels`.
"""

import os

from benchmarks.first_day.checks import holds
from benchmarks.first_day.steps import Context

CALLED_A_CAST = "cast_fp8_gated_kernel"
EXPERTS, ROWS, HIDDEN, INNER, INTERLEAVED = 8, 1024, 4096, 2048, 32


def run(context: Context) -> None:
    """One profiled pass forward and back of eight experts in each recipe; all names of it are kept whole."""
    os.environ["NVTE_CUTEDSL_FUSED_GROUPED_MLP"] = "1"  # read when Transformer Engine is imported
    import torch
    import transformer_engine.pytorch as te
    from transformer_engine.common import recipe as recipes

    from precision_agent.backends.profiler import profiled
    from precision_agent.backends.trace import launches

    def layer(inner: int, outer: int) -> object:
        return te.ops.GroupedLinear(EXPERTS, inner, outer, bias=False, device="cuda", dtype=torch.bfloat16)

    experts = te.ops.Sequential(
        layer(HIDDEN, 2 * INNER), te.ops.ScaledSwiGLU(glu_interleave_size=INTERLEAVED), layer(INNER, HIDDEN)
    )
    rows = torch.full((EXPERTS,), ROWS, dtype=torch.int64, device="cuda")
    x = torch.randn(EXPERTS * ROWS, HIDDEN, dtype=torch.bfloat16, device="cuda", requires_grad=True)
    scales = torch.ones(EXPERTS * ROWS, dtype=torch.bfloat16, device="cuda")
    rows_of_two = torch.randn(ROWS, 2 * INNER, dtype=torch.bfloat16, device="cuda")
    plain = launches(profiled(lambda: te.ops.SwiGLU()(rows_of_two), torch.cuda.synchronize))
    names = sorted({launch.name for launch in plain})
    context.book.check(
        holds(
            "the plain BF16 SwiGLU, which casts nothing, is called a cast", CALLED_A_CAST,
            any(CALLED_A_CAST in name for name in names), "; ".join(names) or "none",
            "the tax is by difference to it: names alone count it",
        )
    )  # fmt: skip
    seen: dict[str, set[str]] = {}
    for name, recipe in (("mxfp8", recipes.MXFP8BlockScaling()), ("nvfp4", recipes.NVFP4BlockScaling())):

        def step(recipe: object = recipe) -> None:
            with te.autocast(enabled=True, recipe=recipe):
                y = experts(x, rows, scales, rows)
            y.backward(torch.ones_like(y))

        step()
        kernels = {launch.name for launch in launches(profiled(step, torch.cuda.synchronize))}
        seen[name] = {kernel for kernel in kernels if "grouped_gemm" in kernel}
        context.book.fact(name, sorted(kernels))
    both = seen["mxfp8"] & seen["nvfp4"]
    context.book.check(
        holds(
            "names of fused experts tell no format", "some are alike in both recipes",
            bool(both) if seen["mxfp8"] and seen["nvfp4"] else None, "; ".join(sorted(both)) or "none",
        )
    )  # fmt: skip
