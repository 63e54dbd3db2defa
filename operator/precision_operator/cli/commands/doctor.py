"""`kubectl precision doctor`: whether the installation works, check by check, and what to do next."""

from dataclasses import asdict, fields

import typer

from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.options import FormOf, Namespace, Reach, asks_cluster
from precision_operator.cli.output import OutputFormat, printed
from precision_operator.cli.terminal import WRONG, say
from precision_operator.cluster import Cluster, paths
from precision_operator.core.observe.observed import Raw
from precision_operator.core.status.doctor import Check, Facts, checks, next_command, text
from precision_operator.shell.observing.installation import looked_at

KEYS = tuple(field.name for field in fields(Check))


@asks_cluster
def doctor(output: FormOf = OutputFormat.TABLE, namespace: Namespace = None, *, reach: Reach) -> None:
    """Check the installation: definitions, operator, rights, images, GPU nodes, exporter. Nothing is changed."""

    async def ask(cluster: Cluster) -> Facts:
        async def scrape(pod: Raw, port: int) -> str:
            meta = pod["metadata"]
            path = f"{paths.item(paths.pods(meta['namespace']), meta['name'])}:{port}/proxy/scraped"
            return await cluster.get_text(path)

        return await looked_at(cluster, scrape, namespace)

    facts = ask_cluster(reach, ask)
    made = checks(facts)
    rows = [asdict(check) for check in made]
    document = {"checks": rows, "next": next_command(facts, made)}
    say(printed(document, output, lambda wide: text(facts, made), rows, KEYS))
    if any(row.fix for row in made):
        raise typer.Exit(WRONG.number)
