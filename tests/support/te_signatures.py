"""Writes the parameters of Transformer Engine's calls, by version, from its sources: nothing of it is imported or run.

    python -m tests.support.te_signatures CLONE --package v2.20=UNPACKED

CLONE is a git clone (bare will do) of NVIDIA/TransformerEngine; UNPACKED the folder of an installed package, for a
version whose tag the clone lacks. The result is agent/precision_agent/backends/te_signatures.json.
"""

import argparse
import ast
import hashlib
import inspect
import json
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.golden import beside

TABLES = beside(__file__)

TAGS = ("v2.8", "v2.9", "v2.12", "v2.16", "v2.18", "v2.20")
OUT = Path(__file__).parents[2] / "agent/precision_agent/backends/te_signatures.json"
PYTORCH = "transformer_engine/pytorch"
RECIPES = "transformer_engine/common/recipe/__init__.py"
Reader = Callable[[str], str | None]
"""Text of a file of one version by its path, None where there is none."""


@dataclass(frozen=True)
class Symbol:
    """A callable: where a caller finds it (`public`), its name in the first of `files` that has it."""

    public: str
    name: str
    files: tuple[str, ...]


_QUANTIZATION = (f"{PYTORCH}/quantization.py", f"{PYTORCH}/fp8.py")
_MODULES = TABLES["modules"]
SYMBOLS = (
    *(Symbol(f"pytorch.{name}", name, _QUANTIZATION) for name in (
        "autocast", "fp8_autocast", "quantized_model_init", "fp8_model_init")),
    *(Symbol(f"pytorch.{name}{method}", f"{name}{method}", (f"{PYTORCH}/{file}",))
      for name, file in _MODULES.items() for method in ("", ".forward")),
    Symbol("pytorch.Linear.backward_dw", "TransformerEngineBaseModule.backward_dw", (f"{PYTORCH}/module/base.py",)),
    Symbol("pytorch.GroupedLinear.backward_dw", "GroupedLinear.backward_dw", (f"{PYTORCH}/module/grouped_linear.py",)),
    Symbol("pytorch.RMSNorm", "RMSNorm", (f"{PYTORCH}/module/rmsnorm.py",)),
    Symbol("pytorch.LayerNorm", "LayerNorm", (f"{PYTORCH}/module/layernorm.py",)),
    Symbol("pytorch.moe_unpermute", "moe_unpermute", (f"{PYTORCH}/permutation.py",)),
    *(Symbol(f"pytorch.ops.{name}", name, tuple(f"{PYTORCH}/ops/basic/{file}.py" for file in ("activation", "swiglu")))
      for name in ("GELU", "SwiGLU", "ClampedSwiGLU")),
    Symbol("pytorch.attention.rope.apply_rotary_pos_emb", "apply_rotary_pos_emb", (f"{PYTORCH}/attention/rope.py",)),
    Symbol("pytorch.checkpoint", "checkpoint", (f"{PYTORCH}/distributed.py",)),
    Symbol("pytorch.RotaryPositionEmbedding", "RotaryPositionEmbedding",
           (f"{PYTORCH}/attention/rope.py", f"{PYTORCH}/attention.py")),
    Symbol("pytorch.RotaryPositionEmbedding.forward", "RotaryPositionEmbedding.forward",
           (f"{PYTORCH}/attention/rope.py", f"{PYTORCH}/attention.py")),
    Symbol("pytorch.optimizers.FusedAdam", "FusedAdam", (f"{PYTORCH}/optimizers/fused_adam.py",)),
    Symbol("pytorch.optimizers.FusedAdam.step", "FusedAdam.step", (f"{PYTORCH}/optimizers/fused_adam.py",)),
    Symbol("pytorch.quantization.FP8GlobalStateManager.reset", "FP8GlobalStateManager.reset", _QUANTIZATION),
    Symbol("pytorch.cpp_extensions.general_gemm", "general_gemm", (f"{PYTORCH}/cpp_extensions/gemm.py",)),
    *(Symbol(f"common.recipe.{name}", name, (RECIPES,)) for name in (
        "DelayedScaling", "Float8CurrentScaling", "Float8BlockScaling", "MXFP8BlockScaling", "NVFP4BlockScaling")),
)  # fmt: skip


def of_version(read: Reader) -> dict[str, str]:
    """Parameters of each symbol that a version has, as Python writes them, defaults as `...`, without self.

    Names that `transformer_engine.pytorch` does not export are left out; `exports` lists those that it does.
    """
    found = {}
    tree = ast.walk(ast.parse(read(f"{PYTORCH}/__init__.py") or ""))
    exported = {a.asname or a.name for node in tree if isinstance(node, ast.ImportFrom) for a in node.names}
    for symbol in SYMBOLS:
        first = symbol.public.split(".")[1]
        if symbol.public.startswith("pytorch.") and symbol.public.count(".") < 3 and first not in exported | {
            "optimizers", "quantization", "cpp_extensions", "ops"
        }:  # fmt: skip
            continue
        texts = (read(file) for file in symbol.files)
        parameters = next((told for text in texts if text and (told := parameters_of(text, symbol.name))), None)
        if parameters is not None:
            found[symbol.public] = parameters.removeprefix("(").removesuffix(")")
    return found


def parameters_of(text: str, name: str) -> str | None:
    """`(a, b=..., *, c)` of a function, method, class's __init__ or dataclass's fields; None where there is none."""
    owner, _, method = name.partition(".")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return _written(node.args, False)
        if isinstance(node, ast.ClassDef) and node.name == owner:
            return _of_class(node, method or "__init__")
    return None


def _of_class(node: ast.ClassDef, method: str) -> str | None:
    for row in node.body:
        if isinstance(row, ast.FunctionDef) and row.name == method:
            return _written(row.args, True)
    if method != "__init__":
        return None
    fields = [row for row in node.body if isinstance(row, ast.AnnAssign) and isinstance(row.target, ast.Name)]
    # Without a constructor of its own: a dataclass, whose annotated fields (and no others) are its parameters.
    named = [f"{ast.unparse(field.target)}{'=...' if field.value else ''}" for field in fields]
    return f"({', '.join(named)})"


def _written(arguments: ast.arguments, method: bool) -> str:
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    for rest in (arguments.vararg, arguments.kwarg):
        if rest:
            rest.annotation = None
    if method and (arguments.posonlyargs or arguments.args):
        (arguments.posonlyargs or arguments.args).pop(0)
    arguments.defaults = [ast.Constant(...) for _ in arguments.defaults]
    arguments.kw_defaults = [default and ast.Constant(...) for default in arguments.kw_defaults]
    return f"({ast.unparse(arguments)})"


@cache
def signatures(tag: str) -> Mapping[str, inspect.Signature]:
    told = json.loads(OUT.read_text(encoding="utf-8"))["versions"][tag]["signatures"]
    return {symbol: signature_of(text) for symbol, text in told.items()}


def signature_of(text: str) -> inspect.Signature:
    """`a, b=..., *, c` as a signature."""
    names: dict[str, Any] = {}
    exec(f"def made({text}): ...", names)
    return inspect.signature(names["made"])


def _git(clone: Path, *words: str) -> str | None:
    done = subprocess.run(["git", "-C", str(clone), *words], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def from_clone(clone: Path, tag: str) -> dict[str, Any]:
    """Commit and signatures of a tag. LookupError where the clone lacks it."""
    commit = (_git(clone, "rev-parse", f"{tag}^{{commit}}") or "").strip()
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise LookupError(f"{clone} has no tag {tag}: fetch it, or give --package {tag}=FOLDER")
    return {"commit": commit, "signatures": of_version(lambda path: _git(clone, "show", f"{commit}:{path}"))}


def from_package(folder: Path) -> dict[str, Any]:
    """Version and signatures of an installed package; `sha256` is over the files that were read, in their order."""
    seen = hashlib.sha256()

    def read(path: str) -> str | None:
        file = folder / path
        text = file.read_text(encoding="utf-8") if file.is_file() else None
        seen.update((text or "").encode())
        return text

    version = next(folder.glob("transformer_engine-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    signatures = of_version(read)
    told = "no commit: read from the package on PyPI, for the clone had no such tag"
    return {"commit": None, "package": version, "note": told, "sha256": seen.hexdigest(), "signatures": signatures}


def main() -> None:
    """Reads all tags and writes the data."""
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("clone", type=Path)
    reader.add_argument("--package", action="append", default=[], metavar="TAG=FOLDER")
    given = reader.parse_args()
    packages = dict(entry.split("=", 1) for entry in given.package)
    versions = {
        tag: from_package(Path(packages[tag])) if tag in packages else from_clone(given.clone, tag) for tag in TAGS
    }
    document = {"generated_by": "python -m tests.support.te_signatures", "versions": versions}
    OUT.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
