"""The verdict's table, a little of it: the command that makes the whole is the proof."""

from statistics import fmean

import numpy as np

from benchmarks.verdict import World, first_rack, forced, usual


def test_sound_nodes_pass_and_planted_ones_do_not() -> None:
    drawn = [usual(World(8, 8), np.random.default_rng([1, at])) for at in range(3)]
    shares = {name: fmean(row[name] for row in drawn) for name in drawn[0]}
    assert (shares["fail"], shares["inconclusive"]) == (0.0, 0.0)
    assert max(shares["gpu passes"], shares["node passes"]) <= 4
    assert 3.5 < shares["D node"] < 5
    assert forced(World(8, 8, sigma=0.65), np.random.default_rng(1))["inconclusive"] < 90, "a forced D is never refused"


def test_a_first_rack_of_nine_judges_itself() -> None:
    assert first_rack(World(9, 8), np.random.default_rng(1))["fail"] == 0
