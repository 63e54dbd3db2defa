"""How operator and exporter write their logs: what objects and servers say stays on its line, as printable words."""

import logging
from typing import Any

from precision_api.facts.plain_text import one_line

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class PlainFormatter(logging.Formatter):
    """Each message on one line without control characters, tracebacks indented below it: nobody's text can look like a
    line of ours."""

    def formatException(self, ei: Any) -> str:  # noqa: N802
        """The traceback; what an exception says stands in it."""
        return "\n".join(f"    {one_line(line)}" for line in super().formatException(ei).splitlines())

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line, before any traceback."""
        record.message = one_line(record.message)
        return super().formatMessage(record)


def log_plainly() -> None:
    """Sets up the root logger of a program: INFO and above, to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
