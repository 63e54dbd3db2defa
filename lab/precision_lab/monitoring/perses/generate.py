"""Writes the dashboards as Perses' files: `python -m precision_lab.monitoring.perses.generate [--check]`."""

import argparse
import sys
from pathlib import Path

from precision_api.kinds import crdgen
from precision_lab.monitoring.perses.dashboard import text
from precision_operator.monitoring.dashboards.catalog import DASHBOARDS

ROOT = Path(__file__).parents[4]
FOLDER = "docs/dashboards/perses"


def files() -> dict[str, str]:
    """Path within the repository to text."""
    return {f"{FOLDER}/{dashboard.uid}.json": text(dashboard) for dashboard in DASHBOARDS}


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m precision_lab.monitoring.perses.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail with a diff where a file is stale")
    sys.exit(crdgen.put(ROOT, files(), parser.parse_args().check))
