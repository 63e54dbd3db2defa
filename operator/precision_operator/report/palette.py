"""Colours that people with any kind of colour vision tell apart (Okabe and Ito, 2008), and a second mark for each.

Nothing on the page is told by colour alone: recipes have their own marker and dash, and their name stands beside.
"""

from __future__ import annotations

from collections.abc import Mapping

from precision_api.recipes import Recipe

RECIPE_COLOURS: Mapping[Recipe, str] = {
    "bf16": "#000000",
    "fp8_delayed": "#0072B2",
    "fp8_current": "#56B4E9",
    "fp8_block": "#009E73",
    "mxfp8": "#E69F00",
    "nvfp4": "#D55E00",
    "nvfp4_no_rht": "#CC79A7",
}
RECIPE_DASHES: Mapping[Recipe, str] = {
    "bf16": "",
    "fp8_delayed": "6 2",
    "fp8_current": "2 2",
    "fp8_block": "8 2 2 2",
    "mxfp8": "4 4",
    "nvfp4": "10 3",
    "nvfp4_no_rht": "1 3",
}
PARTS = ("#0072B2", "#56B4E9", "#E69F00", "#F0E442", "#009E73", "#CC79A7", "#D55E00", "#999999")
"""For the parts of a stack, in their order."""
MARKERS = "osD^v"
"""matplotlib's letters for a pool's marker, in the order of the pools."""
