"""What a command prints: data on stdout, everything else on stderr."""

import typer

from precision_api.facts.plain_text import plain


def say(text: str, err: bool = False) -> None:
    """Prints `text`, whoever wrote what stands in it: only printable characters, tabs and line ends reach the
    terminal."""
    typer.echo("\t".join(map(plain, text.split("\t"))), err=err)
