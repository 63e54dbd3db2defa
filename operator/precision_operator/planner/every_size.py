"""The sizes between those that are tried as a rule: that no plan has a usual size does not prove that there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from precision_operator.planner.evidence import CandidatePool
from precision_operator.planner.highs import NoneFound
from precision_operator.planner.options import Offer, Option, offers, sizes
from precision_operator.planner.quantities import Problem
from precision_operator.planner.solve import useful
from precision_operator.planner.terms import Terms

MOST = 200_000
"""Sizes of all jobs in all pools that are looked at: 2 s,"""
MOST_QUEUED = 20_000
"""and where jobs wait, since then all of them are in the program."""


def with_every_size(found: Sequence[CandidatePool], terms: Terms, usual: Sequence[Offer]) -> tuple[Offer, ...]:
    """The offers with all sizes that might make a plan possible; empty where the usual ones are all there are.

    Raises NoneFound where they are too many.
    """
    there = sizes(found, terms, every=True)
    if there == sizes(found, terms):
        return ()
    waits = any(offer.job.after for offer in usual)
    most = MOST_QUEUED if waits else MOST
    if there > most:
        text = (
            f"no plan was found with the sizes that were tried, which proves nothing: {there} sizes are more than the "
            f"{most} that can all be tried. Name a size between with jobs[].minGPUs and maxGPUs, or narrow the choice "
            "with jobs[].pools"
        )
        raise NoneFound(Problem("spec.jobs", text))
    every = offers(found, terms, every=True)
    return every if waits else tuple(map(_that_matter, every, usual))


def _that_matter(every: Offer, usual: Offer) -> Offer:
    """The usual sizes, and those that no smaller one beats in everything: at once nothing else helps a job to fit."""
    wanted = {*map(_place, usual.options), *map(_place, useful(every, math.inf).options)}
    return replace(every, options=tuple(option for option in every.options if _place(option) in wanted))


def _place(option: Option) -> tuple[str, str, int]:
    return option.pool.name, option.recipe, option.gpus
