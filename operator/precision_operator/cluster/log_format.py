"""How operator and exporter write their logs: what objects and servers say stays on its line, as printable words."""

from __future__ import annotations

import logging

from precision_api.facts.plain_text import one_line

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class PlainFormatter(logging.Formatter):
    """Each message on one line without control characters: nobody's text can look like a line of ours. Tracebacks
    follow as ever."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        """The line, before any traceback."""
        record.message = one_line(record.message)
        return super().formatMessage(record)


def log_plainly() -> None:
    """Sets up the root logger of a program: INFO and above, to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter(FORMAT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
