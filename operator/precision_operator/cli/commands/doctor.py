"""`kubectl precision doctor`: whether the installation works, check by check, and what to do next."""

from shlex import quote

import typer

from precision_operator.cli.connection_options import ask_cluster
from precision_operator.cli.options import FormOf, Namespace, Reach, asks_cluster
from precision_operator.cli.output import OutputFormat, printed
from precision_operator.cli.terminal import NO_RIGHT, WRONG, end, say
from precision_operator.cluster import Cluster, paths
from precision_operator.core.observe.observed import Raw
from precision_operator.core.status.doctor import KEYS, Facts, checked, text
from precision_operator.shell.observing.installation import looked_at


@asks_cluster
def doctor(output: FormOf = OutputFormat.TABLE, namespace: Namespace = None, *, reach: Reach) -> None:
    """Check the installation: definitions, operator, rights, images, GPU nodes, exporter. Nothing is changed."""

    async def ask(cluster: Cluster) -> Facts:
        async def scrape(pod: Raw, port: int) -> str:
            path = paths.item(paths.pods(pod["metadata"]["namespace"]), pod["metadata"]["name"])
            return await cluster.get_text(f"{path}:{port}/proxy/scraped")

        return await looked_at(cluster, scrape, namespace)

    made = checked(ask_cluster(reach, ask))
    made["next"] = _reaching(reach, made["next"])
    for row in made["checks"]:
        row["fix"] = row["fix"] and _reaching(reach, row["fix"])
    say(printed(made, output, lambda wide: text(made), made["checks"], KEYS))
    states = {row["check"]: row["state"] for row in made["checks"]}
    if "wrong" in states.values():
        raise typer.Exit(WRONG.number)
    if states["operator"] != "ok":
        end(NO_RIGHT, "nothing is seen of an operator: ask for these rights, or name its namespace with -n")


def _reaching(reach: Reach, command: str) -> str:
    """The command of doctor for the cluster that was asked, by kubectl's options or Helm's."""
    context = "--kube-context" if command.startswith("helm ") else "--context"
    flags = {context: reach.context, "--kubeconfig": reach.kubeconfig} if not command.endswith("--version") else {}
    return command + "".join(f" {name}={quote(value)}" for name, value in flags.items() if value is not None)
