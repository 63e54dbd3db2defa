"""Which attention Transformer Engine chose for a step, and why no other: in the words of its log."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from precision_agent.backends.te.api import Api


@contextmanager
def choosing(api: Api) -> Iterator[list[str]]:
    """Has attention chosen anew within; afterwards the list has what was logged of it, from DEBUG up."""
    said: list[str] = []
    attention = getattr(getattr(api.pytorch, "attention", None), "dot_product_attention", None)
    if attention is None:
        yield said
        return
    logger, heard = logging.getLogger("DotProductAttention"), logging.Handler()
    levels = attention.utils.AttentionLogging
    heard.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    level, handlers = levels._log_level, logger.handlers
    levels._log_level, logger.handlers = logging.DEBUG, [heard]
    attention._attention_backends["attention_params"] = None
    try:
        yield said
    finally:
        levels._log_level, logger.handlers = level, handlers
        logger.setLevel(level)


def backend(said: Sequence[str]) -> str | None:
    """The last choice: "FusedAttention (sub-backend 1)" is cuDNN's in BF16, 2 in FP8; "NoBackend"; None without one."""
    chosen = [line.removeprefix("Selected backend = ").rstrip(".") for line in said if line.startswith("Selected")]
    return chosen[-1] if chosen else None


def refusals(said: Sequence[str]) -> list[str]:
    """Why backends were not taken, each reason once: "Disabling FusedAttention for MXFP8 on arch < sm100"."""
    return [*dict.fromkeys(line for line in said if line.startswith("Disabling "))]
