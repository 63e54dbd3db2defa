"""`kubectl precision shapes`: what it prints, where, and what it says of wrong input."""

import csv
import io
import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from precision_api.facts.recipes import RECIPES
from precision_operator.cli import app
from tests.support.golden import beside

TABLES = beside(__file__)

LLAMA = TABLES["llama"]
DOCUMENT = """---
apiVersion: precisionprofiler.io/v1alpha1
kind: PrecisionProfile
metadata: {{name: {}}}
spec:
  workload: {{preset: {}}}
"""
PROFILE = "apiVersion: v1\nkind: ConfigMap\n" + DOCUMENT.format("a", "codonfm-5b") + DOCUMENT.format("b", "llama3-8b")
SIZES = ("--micro-batch-size", "2", "--sequence-length", "4096")


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["shapes", *arguments], input=stdin)


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    return str(path)


def test_the_split_over_gpus_is_given_on_the_command_line_as_in_a_profile(tmp_path: Path) -> None:
    told = json.loads(run("--preset", "qwen3-30b-a3b", "--expert-parallel", "8", "-o", "json").stdout)
    profile = tmp_path / "profile.yaml"
    spec = {"workload": {"preset": "qwen3-30b-a3b", "expertParallel": 8}}
    profile.write_text(json.dumps({"kind": "PrecisionProfile", "spec": spec}))
    assert told == json.loads(run("-f", str(profile), "-o", "json").stdout)
    assert told["expertParallel"] == 8
    whole = json.loads(run("--preset", "qwen3-30b-a3b", "-o", "json").stdout)
    experts = [{row["name"]: row["count"] for row in found["gemms"]} for found in (told, whole)]
    assert experts[0] != experts[1]
    assert "one GPU of        2 in tensor parallelism" in run("--preset", "llama3-8b", "--tensor-parallel", "2").stdout


def test_dimensions_on_the_command_line_may_be_nested_and_refuse_a_split_of_bare_shapes() -> None:
    output = run("--shape", "8192x4096x4096", "--expert-parallel", "8")
    assert output.exit_code != 0
    assert (
        "workload: gemms and shapes are taken literally: leave tensorParallel and expertParallel out" in output.output
    )
    dimensions = "hiddenSize=4096,intermediateSize=16384,numAttentionHeads=32,numHiddenLayers=24,causal=false"
    by_hand = run("--model", dimensions, "--micro-batch-size", "31", "--sequence-length", "512", "-o", "json")
    preset = run("--preset", "codonfm-5b", "-o", "json")
    assert json.loads(by_hand.stdout) | {"workload": "codonfm-5b"} == json.loads(preset.stdout)
    dimensions = "hiddenSize=64,intermediateSize=128,numAttentionHeads=4,numHiddenLayers=2,moe.numExperts=8,moe.topK=3"
    document = json.loads(run("--model", dimensions, *SIZES, "-o", "json").stdout)
    assert {row["m"] for row in document["gemms"] if row["name"] == "experts_up" and row["pass"] == "fprop"} == {3072}
    assert "experts_up: 8 experts run as one grouped GEMM; count counts each expert" in document["notes"]


def test_a_hugging_face_config_gives_gemms_parameters_and_flops_as_json(config: str) -> None:
    result = run("--hf-config", config, *SIZES, "-o", "json")
    document = json.loads(result.stdout)
    assert result.exit_code == 0
    qkv = {"name": "qkv", "pass": "fprop", "m": 8192, "k": 4096, "n": 6144, "count": 32}
    assert document["gemms"][0] == qkv | {"flops": 2 * 8192 * 4096 * 6144}
    assert len(document["gemms"]) == 15
    without = 8_030_261_248 - 128256 * 4096
    known = {"total": 8_030_261_248, "active": 8_030_261_248, "activeWithoutEmbedding": without}
    assert document["parameters"] == known
    assert document["trainingFlopsPerToken"] == 48_250_773_504
    assert (document["formula"]["name"], document["formula"]["version"]) == ("active_parameters_and_attention", 1)
    assert (document["workload"], document["tokensPerMicroBatch"]) == ("config", 8192)


def test_a_config_may_come_from_stdin(config: str) -> None:
    piped = run("--hf-config", "-", *SIZES, "-o", "csv", stdin=json.dumps(LLAMA))
    assert piped.stdout == run("--hf-config", config, *SIZES, "-o", "csv").stdout


def test_tokens_that_do_not_spread_evenly_over_experts_are_told() -> None:
    uneven, even = (
        json.loads(run("--preset", "mixtral-8x7b", "--sequence-length", length, "-o", "json").stdout)
        for length in ("1001", "1000")
    )
    told = "tokens do not spread evenly over the experts: their m is rounded up"
    assert (told in uneven["notes"], told in even["notes"]) == (True, False)


def test_a_profile_gives_its_workload_and_the_first_of_several_counts(tmp_path: Path) -> None:
    path = tmp_path / "profile.yaml"
    path.write_text(PROFILE)
    assert run("-f", str(path), "-o", "json").stdout == run("--preset", "codonfm-5b", "-o", "json").stdout


def test_sizes_on_the_command_line_win_over_the_profile_and_its_gemms_are_echoed() -> None:
    document = json.loads(run("-f", "-", "--sequence-length", "1024", "-o", "json", stdin=PROFILE).stdout)
    assert (document["microBatchSize"], document["sequenceLength"]) == (31, 1024)
    profile = "kind: PrecisionProfile\nspec: {workload: {name: g, gemms: [15872x4096x12288]}}"
    document = json.loads(run("-f", "-", "-o", "json", stdin=profile).stdout)
    forward = document["gemms"][0]
    assert (forward["name"], forward["m"], forward["k"], forward["n"]) == ("15872x4096x12288", 15872, 4096, 12288)


def test_explicit_shapes_have_gradients_but_no_parameters() -> None:
    document = json.loads(run("--shape", "64x32x16", "--shape", "100x32x16", "-o", "json").stdout)
    assert len(document["gemms"]) == 6
    assert (document["parameters"], document["trainingFlopsPerToken"]) == (None, None)
    refusing = {row["recipe"] for row in document["recipeProblems"] if row["message"].startswith("100x32x16")}
    assert refusing == {recipe for recipe, facts in RECIPES.items() if facts.multiple_of > 1}


def test_what_is_in_no_gemm_is_named_with_its_share() -> None:
    document = json.loads(run("--preset", "nemotron-3-nano-30b-a3b", "-o", "json").stdout)
    shares = {row["name"]: row["share"] for row in document["flopShares"]}
    assert sum(shares.values()) == pytest.approx(1)
    assert 0.01 < shares["scan of Mamba-2"] < 0.02 < shares["attention products"] < shares["GEMMs"]
    table = run("--preset", "nemotron-3-nano-30b-a3b").stdout
    assert "92.96% in the GEMMs above; in none of them: attention products 5.80%; scan of Mamba-2 1.22%" in table
    assert "choice of experts, permutation of tokens (no FLOPs)" in table
    assert "3,227,751,872 without the input embedding (as OpenAI and NVIDIA count)" in table
    assert "NVIDIA's published TFLOP/s count 22,331,261,568 FLOPs a token" in table
    for name, but in (("router", ""), ("lm_head", " but mixtures that set head")):
        words = f"{name}: stays in high precision with every recipe{but}; as a GEMM it is measured in bf16"
        assert words in table


def test_modules_for_multi_token_prediction_are_told_apart() -> None:
    dimensions = "hiddenSize=64,intermediateSize=128,numAttentionHeads=4,numHiddenLayers=2,vocabSize=100,mtp.modules=1"
    with_module, without = (
        json.loads(run("--model", text, *SIZES, "-o", "json").stdout)
        for text in (dimensions, dimensions.replace(",mtp.modules=1", ""))
    )
    module = with_module.pop("multiTokenPrediction")
    assert module["parameters"] == 4 * 64 * 64 + 2 * 64 * 128 + 2 * 64 * 64 + 5 * 64
    assert without.pop("multiTokenPrediction") is None
    assert "none" not in with_module["notes"][1]
    assert any("for multi-token prediction with 41,280 parameters" in note for note in with_module["notes"])
    del with_module["notes"], without["notes"]
    assert with_module == without


def test_where_a_layer_does_not_fit_is_said_by_product_and_recipe() -> None:
    document = json.loads(run("--preset", "kimi-k2", "-o", "json").stdout)
    fits = {row["product"]: row["fits"] for row in document["room"]}
    assert not any(fits.values()), "all recipes at once take 295 GB, and 85 % of a B300 is 262 GB"
    table = run("--preset", "kimi-k2").stdout
    assert "room              H100 SXM: one layer with 384 experts on each GPU beside a dense one does not fit" in table
    assert "fits with all recipes" not in table
    smaller = run("--preset", "qwen3-30b-a3b").stdout
    assert "room              one layer fits with all recipes at once on GB200, GB300, H100 SXM, " in smaller


def test_yaml_and_csv_say_the_same_as_json() -> None:
    document = json.loads(run("--preset", "qwen3-8b", "-o", "json").stdout)
    assert yaml.safe_load(run("--preset", "qwen3-8b", "-o", "yaml").stdout) == document
    rows = list(csv.DictReader(io.StringIO(run("--preset", "qwen3-8b", "-o", "csv").stdout)))
    assert rows == [{key: str(value) for key, value in row.items()} for row in document["gemms"]]


def test_the_table_is_for_people() -> None:
    assert run("--shape", "64x128x32").stdout == (
        "NAME        PASS      M     K     N   COUNT    FLOPS\n"
        "64x128x32   fprop    64   128    32       1   524288\n"
        "64x128x32   dgrad    64    32   128       1   524288\n"
        "64x128x32   wgrad   128    64    32       1   524288\n"
        "\n"
        "workload          shapes (55d93a8d358aca00)\n"
        "note              explicit GEMMs: no model, so no parameters and no FLOPs per token\n"
        + "".join(
            f"warning           {recipe}: 64x128x32: {recipe} trains without its fused Hadamard transform here, which "
            "is much slower: n=32 is no multiple of 128\n"
            for recipe, facts in RECIPES.items()
            if facts.hadamard
        )
    )


@pytest.mark.parametrize(("arguments", "words"), beside(__file__)["refused"])
def test_wrong_input_ends_with_code_2_and_a_sentence_on_stderr(arguments: str, words: str) -> None:
    result = run(*arguments.split(), stdin="kind: Pod")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert words in result.stderr


@pytest.mark.parametrize(("text", "words"), TABLES["unusable"])
def test_a_file_that_cannot_be_used_is_refused(text: str, words: list[str]) -> None:
    result = run(*(("--hf-config", "-", *SIZES) if text.startswith("{") else ("-f", "-")), stdin=text)
    assert (result.exit_code, [word for word in words if word not in result.stderr]) == (2, [])
