"""Which attention core runs in FP8: Transformer Engine's own choice, for made-up GPUs and versions of cuDNN.

cuDNN's own answer needs them and is made up too: it takes all that it is asked for.
"""

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from precision_agent.backends.te.api import load, version_of
from precision_agent.backends.te.steps.attention_backend import backend, choosing, refusals

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs Transformer Engine and a GPU or a rehearsal"),
]
HOPPER, B200, RTX = (9, 0), (10, 0), (12, 0)
DELAYED, CURRENT, MXFP8, NVFP4 = "DelayedScaling", "Float8CurrentScaling", "MXFP8BlockScaling", "NVFP4BlockScaling"
DETERMINISTIC, WINDOW, MHA = {"deterministic": True}, {"window_size": (1023, 0)}, {"fp8_mha": True}
BUGGY = "9.23.0/9.23.1"


@pytest.mark.parametrize(
    ("recipe", "compute", "more", "since", "refused"),
    [
        (DELAYED, HOPPER, {}, "2.8", {"9.14.0": ""}),
        (DELAYED, HOPPER, WINDOW, "2.8", {"9.23.2": "sliding window"}),
        (DELAYED, B200, {}, "2.8", {"9.14.0": ""}),
        (DELAYED, B200, WINDOW, "2.20", {"9.20.0": "sliding window", "9.21.0": ""}),
        (DELAYED, B200, DETERMINISTIC, "2.15", {"9.17.0": "determinism", "9.19.0": ""}),
        (DELAYED, RTX, {}, "2.10", {"9.23.2": "sm120"}),
        (CURRENT, HOPPER, {}, "2.8", {"9.23.2": "arch < sm100"}),
        (CURRENT, B200, {}, "2.10", {"9.13.0": "cuDNN < 9.14.0", "9.14.0": ""}),
        (CURRENT, RTX, {}, "2.10", {"9.23.2": "sm120"}),
        (MXFP8, HOPPER, {}, "2.15", {"9.23.2": "arch < sm100"}),
        (
            MXFP8,
            B200,
            {},
            "2.15",
            {"9.20.0": "cuDNN < 9.21.0", "9.21.0": "", "9.23.0": BUGGY, "9.23.1": BUGGY},
        ),
        (MXFP8, B200, {}, "2.15", {"9.23.2": ""}),
        (MXFP8, B200, MHA, "2.15", {"9.23.2": "fp8_mha=True"}),
        (NVFP4, B200, {}, "2.15", {"9.23.2": "NVFP4BlockScaling"}),
    ],
)
def test_fp8_attention_runs_where_its_table_says(
    monkeypatch: pytest.MonkeyPatch, recipe: str, compute: Any, more: Any, since: str, refused: Mapping[str, str]
) -> None:
    te = load()
    if version_of(te.version) < version_of(since):
        pytest.skip(f"Transformer Engine {since} and newer")
    utils = te.pytorch.attention.dot_product_attention.utils
    fp8 = utils.FusedAttnBackend["FP8"]
    monkeypatch.delenv("NVTE_FUSED_ATTN", raising=False)
    monkeypatch.setattr(utils, "get_device_compute_capability", lambda: compute)
    monkeypatch.setattr(utils, "_get_fused_attn_backend", lambda **_: (int(fp8), ""), raising=False)
    monkeypatch.setattr(utils.tex, "get_fused_attn_backend", lambda *_: fp8)  # as older versions ask
    core = getattr(te.recipe, recipe)(fp8_dpa=True, **(more if more is MHA else {}))
    asked = {
        "qkv_layout": "sbhd_sbhd_sbhd", "num_heads": 32, "num_gqa_groups": 8, "head_dim_qk": 128, "head_dim_v": 128,
        "attn_mask_type": "causal", "fp8": True, "fp8_meta": {"recipe": core}, **(more if more is not MHA else {}),
    }  # fmt: skip
    for cudnn, reason in refused.items():
        monkeypatch.setattr(utils, "get_cudnn_version", lambda cudnn=cudnn: tuple(map(int, cudnn.split("."))))
        with choosing(te) as said:
            utils.get_attention_backend(utils.AttentionParams(**asked))
        assert backend(said) == ("NoBackend" if reason else "FusedAttention (sub-backend 2)"), refusals(said)
        assert any("FusedAttention" in line and reason in line for line in refusals(said)) == bool(reason)


def test_fp8_blocks_have_no_attention_of_their_own() -> None:
    with pytest.raises((AssertionError, ValueError), match="not supported for Float8BlockScaling"):
        load().recipe.Float8BlockScaling(fp8_dpa=True)
