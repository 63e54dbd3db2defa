"""The program `precision-agent`: measures by a request or on this very box, explains results, classifies kernels.

First it makes the process's user one whom torch and its compilers can ask for a name and a place to write. A
container's user often has no entry in /etc/passwd, and its home is `/` or read-only. Inductor asks for the user's name
(torch before 2.13 ends with a KeyError where there is none), Triton and CUDA write their caches below the home.
"""

import contextlib
import json
import os
import pwd
import sys
import tempfile
from collections.abc import MutableMapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from pydantic import ValidationError

from precision_agent import __version__
from precision_agent.precision.kernels import classify
from precision_agent.results import explain as words
from precision_agent.run.check import check
from precision_agent.run.cli_run import run
from precision_agent.run.cli_trace import verify_trace
from precision_agent.run.options import Form
from precision_api.exchange.result import RESULT_VERSION, MeasurementResult
from precision_api.facts.json_text import read_json, rows_of

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
NAME = "precision"
NAMED_BY = ("LOGNAME", "USER")
"""What `getpass.getuser` asks before /etc/passwd."""


app.command()(run)
app.command()(check)
app.command("verify-trace")(verify_trace)


@app.callback()
def program() -> None:
    """Measures low-precision training on one node. Knows nothing of Kubernetes: a request in, a result out."""


@app.command()
def version() -> None:
    """Prints the agent's version."""
    typer.echo(__version__)


@app.command("explain")
def explain(
    file: Annotated[str, typer.Argument(help="A result as `run --output FILE` wrote it; '-' is stdin.")],
    baseline: Annotated[str | None, typer.Option(help="Speedups over this recipe of the run.")] = None,
    output: Annotated[Form, typer.Option("--output", "-o", help="table or json.")] = Form.table,
) -> None:
    """Says of each figure of a result where it comes from and how sure it is."""
    try:
        rows = words.explain(_result(file), baseline)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--baseline") from error
    typer.echo(json.dumps(words.as_document(rows), indent=2) if output is Form.json else words.as_text(rows))


def _result(file: str) -> MeasurementResult:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
        return read_json(MeasurementResult, text)
    except OSError as error:
        _usage(f"reading the result: {error}; give the file that `precision-agent run --output FILE` wrote")
    except UnicodeDecodeError:
        _usage(f"{file} is not text; give the file that `precision-agent run --output FILE` wrote")
    except ValidationError as error:
        first = rows_of(error)[0]
        place = "".join(f"{step}: " for step in first["loc"][:3])
        wanted = "give the file that `precision-agent run --output FILE` wrote, and an agent of its version"
        _usage(f"{file} is no result of version {RESULT_VERSION} ({place}{first['msg']}); {wanted}")


def _usage(message: str) -> NoReturn:
    raise typer.BadParameter(message[:1024], param_hint="FILE")


@app.command("classify-kernels")
def classify_kernels(
    file: Annotated[str, typer.Argument(help="Kernel names as a profiler prints them, one a line; '-' is stdin.")],
    output: Annotated[Form, typer.Option("--output", "-o", help="table or json.")] = Form.table,
) -> None:
    """Says in which precision each kernel multiplied, and the rule that tells; 'unknown' where no rule does."""
    try:
        read = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"reading kernel names: {error}; check the path", param_hint="FILE") from error
    lines = (line.strip() for line in read.decode("utf-8-sig", errors="replace").split("\n"))
    rows = [classify(line) for line in lines if line]
    if output is Form.json:
        documents = [{"name": row.name, "class": row.kernel_class, "rule": row.rule} for row in rows]
        typer.echo(json.dumps(documents, indent=2))
        return
    typer.echo(f"{'CLASS':<11} {'RULE':<19} NAME")
    for row in rows:
        typer.echo(f"{row.kernel_class:<11} {row.rule:<19} {row.name}")


def main() -> None:
    """Entry point of the console script."""
    settle_user(os.environ)
    app()


def settle_user(environment: MutableMapping[str, str]) -> None:
    """Writes LOGNAME, USER and HOME into `environment` where they are missing or of no use; before torch is imported.

    A name or a home that is of use stays as it is.
    """
    entry = _entry()
    for variable in NAMED_BY:
        if not environment.get(variable):
            environment[variable] = entry.pw_name if entry else NAME
    home = environment.get("HOME") or (entry.pw_dir if entry else "")
    if not (home and Path(home).is_dir() and os.access(home, os.W_OK | os.X_OK)):
        with contextlib.suppress(FileNotFoundError):  # no place at all can be written: whoever needs one says so
            environment["HOME"] = tempfile.gettempdir()


def _entry() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(os.getuid())
    except KeyError:
        return None
