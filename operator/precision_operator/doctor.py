"""`python -m precision_operator.doctor`: the checks of `kubectl precision doctor`, in a pod of `helm test`."""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException

from precision_operator.cluster import ApiError, ConnectionProblem
from precision_operator.cluster.connection import DirectCluster
from precision_operator.core.observe.observed import Raw
from precision_operator.core.status.doctor import Facts, checked, text
from precision_operator.shell.observing.installation import looked_at

PATIENCE_SECONDS = 30.0
"""How long an operator that has just started may take to lead, after one that left its Lease behind."""


async def scrape(pod: Raw, port: int) -> str:
    """What an exporter's pod says of its last scrape. Raises ApiError."""

    def answer() -> str:
        connection = HTTPConnection(pod["status"].get("podIP", "0.0.0.0"), port, timeout=5.0)
        connection.request("GET", "/scraped")
        if (response := connection.getresponse()).status != 200:
            raise HTTPException(f"HTTP {response.status} {response.reason}")
        return response.read(1 << 16).decode(errors="replace")

    try:
        return await asyncio.to_thread(answer)
    except (OSError, HTTPException) as error:
        raise ApiError(0, "Unreachable", str(error) or type(error).__name__) from error


async def _facts(options: argparse.Namespace) -> Facts:
    async with DirectCluster.connect(None) as cluster:
        return await looked_at(cluster, scrape, None, options.deployment, options.exporter)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0, 1 where something is wrong or no operator or leader is seen, 2 where there is no cluster."""
    parser = argparse.ArgumentParser("python -m precision_operator.doctor", description=__doc__)
    parser.add_argument("--deployment", required=True, help="The operator's, in our namespace.")
    parser.add_argument("--no-exporter", dest="exporter", action="store_false", help="There is none.")
    options, end = parser.parse_args(argv), time.monotonic() + PATIENCE_SECONDS
    try:
        while True:
            made = checked(asyncio.run(_facts(options)))
            needed = [row for row in made["checks"] if row["check"] in ("operator", "leader") and row["state"] != "ok"]
            wrong = {row["check"] for row in (*needed, *made["checks"]) if row["fix"] or row in needed}
            if "leader" not in wrong or time.monotonic() >= end:
                break
            time.sleep(1.0)
    except (ApiError, ConnectionProblem) as error:
        print(f"doctor: {error}", file=sys.stderr)
        return 2
    print(text(made))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
