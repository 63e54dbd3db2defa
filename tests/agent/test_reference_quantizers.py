"""The reference quantizers against their formats' definitions: every code, ties, saturation, scales, expectation."""

import itertools
from collections.abc import Callable

import pytest
import torch

from precision_agent.precision.verification import ERROR_BANDS, numeric_verdict
from precision_api.facts.recipes import RECIPE_NAMES, Recipe
from precision_api.models.shapes import PASSES
from tests.support import reference_quantizers as q

pytestmark = pytest.mark.torch

FORMATS = [q.E2M1, q.E4M3, q.E5M2]
E2M1_NUMBERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=chance(seed)).bfloat16().float()


def numbers(kind: q.Float) -> torch.Tensor:
    """All finite numbers of a format from its definition, ascending, with both signs."""
    steps = 2**kind.mantissa_bits
    subnormal = [i / steps * 2.0**kind.least_exponent for i in range(steps)]
    binades = itertools.takewhile(lambda e: 2.0**e <= kind.largest, itertools.count(kind.least_exponent))
    normal_ = [(1 + i / steps) * 2.0**e for e in binades for i in range(steps)]
    positive = [value for value in subnormal + normal_ if value <= kind.largest]
    return torch.tensor([-value for value in reversed(positive[1:])] + positive)


def test_e2m1_is_as_specified_ties_go_to_even_and_subnormals_to_zero() -> None:
    assert tuple(value for value in numbers(q.E2M1).tolist() if value >= 0) == E2M1_NUMBERS
    ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    even = torch.tensor([0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0])
    assert torch.equal(q.rounded(ties, q.E2M1), even)
    assert torch.equal(q.rounded(-ties, q.E2M1), -even)
    assert q.rounded(torch.tensor([2.0**-9, 2.0**-10, 1.5 * 2.0**-10]), q.E4M3).tolist() == [2.0**-9, 0.0, 2.0**-9]
    assert q.rounded(torch.tensor([2.0**-16, 2.0**-17]), q.E5M2).tolist() == [2.0**-16, 0.0]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_number_goes_to_the_nearest_of_its_format_and_beyond_is_saturated(kind: q.Float) -> None:
    every = numbers(kind)
    assert torch.equal(q.rounded(every, kind), every)
    assert torch.equal(q.rounded(every, kind, chance()), every)
    values = torch.empty(500).uniform_(-1.2 * kind.largest, 1.2 * kind.largest, generator=chance())
    values = torch.cat((values, normal(500), normal(500) * 2.0**kind.least_exponent))
    assert torch.equal((values - q.rounded(values, kind)).abs(), (values[:, None] - every).abs().amin(dim=1))
    found = q.rounded(torch.tensor([kind.largest * 1.5, -1e30, float("inf"), -float("inf")]), kind)
    assert found.tolist() == [kind.largest, -kind.largest, kind.largest, -kind.largest]
    assert bool(q.rounded(torch.tensor([float("nan")]), kind).isnan().all())


@pytest.mark.parametrize(("kind", "dtype"), [(q.E4M3, torch.float8_e4m3fn), (q.E5M2, torch.float8_e5m2)])
def test_finite_codes_and_rounding_agree_with_torchs_float8(kind: q.Float, dtype: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    finite = codes[codes.isfinite()]
    assert len(finite) == {torch.float8_e4m3fn: 254, torch.float8_e5m2: 248}[dtype]
    assert torch.equal(q.rounded(finite, kind), finite)
    assert set(finite.tolist()) == set(numbers(kind).tolist())
    every = numbers(kind)
    middle = (every[1:] + every[:-1]) / 2
    spread = normal(20_000) * torch.exp2(torch.empty(20_000).uniform_(-20, 16, generator=chance()))
    values = torch.cat((middle, middle.nextafter(every[1:]), middle.nextafter(every[:-1]), spread))
    values = values.clamp(-kind.largest, kind.largest)
    assert torch.equal(q.rounded(values, kind), values.to(dtype).float())


@pytest.mark.parametrize("kind", FORMATS)
def test_stochastic_rounding_takes_a_neighbour_and_is_right_on_average(kind: q.Float) -> None:
    every = numbers(kind)
    low, high = float(every[-3]), float(every[-2])
    draws = 40_000
    for fraction in (0.1, 0.5, 0.9):
        value = low + fraction * (high - low)
        found = q.rounded(torch.full((draws,), value), kind, chance())
        assert set(found.unique().tolist()) == {low, high}
        # Five standard deviations of the mean of a two-valued draw.
        margin = 5 * (high - low) * (fraction * (1 - fraction) / draws) ** 0.5
        assert abs(float(found.double().mean()) - value) < margin


def test_e8m0_scales_are_powers_of_two_by_either_rule_and_agree_with_torch() -> None:
    given = torch.tensor([1.0, 1.0001, 1.9999, 2.0, 3.0, 0.75, 2.0**-126, 3e38])
    assert q.power_of_two(given, "up").tolist() == [1.0, 2.0, 2.0, 2.0, 4.0, 1.0, 2.0**-126, 2.0**127]
    assert q.power_of_two(given, "floor").tolist() == [1.0, 1.0, 1.0, 2.0, 2.0, 0.5, 2.0**-126, 2.0**127]
    assert torch.equal(q.power_of_two(torch.tensor([2.0**-127]), "up").log2(), torch.tensor([-127.0]))
    powers = torch.exp2(torch.arange(-126, 128).float())
    assert torch.equal(q.power_of_two(powers, "up"), powers.to(torch.float8_e8m0fnu).float())


def test_mxfp8_saturates_by_the_specification_and_each_block_has_its_scale() -> None:
    block = torch.full((1, 32), 1.0)
    block[0, 0] = 500.0  # floor(log2 500) - 8 = 0: the scale is 1 and 500 is beyond 448
    assert float(q.mxfp8(block, way="floor")[0, 0]) == 448.0
    assert float(q.mxfp8(block, way="up")[0, 0]) == 512.0  # scale 2: 250 -> 256
    x = torch.cat((torch.full((1, 32), 1e-6), torch.full((1, 32), 1e6)), dim=1)
    assert torch.allclose(q.mxfp8(x), x, rtol=2**-4)
    assert float(q.per_tensor(x, q.E4M3)[0, 0]) == 0.0  # one scale for both loses the small block


def test_blocks_are_rows_or_squares_of_their_size() -> None:
    x = torch.ones(256, 256)
    x[0, 0] = 2.0**40
    rows, squares = q.fp8_block(x), q.fp8_block(x, square=True)
    assert [float(rows[0, 1]), float(rows[1, 1]), float(rows[0, 128])] == [0.0, 1.0, 1.0]
    assert [float(squares[127, 127]), float(squares[128, 0]), float(squares[0, 128])] == [0.0, 1.0, 1.0]
    x = torch.ones(32, 32)
    x[0, 0] = 400.0
    rows, squares = q.nvfp4(x), q.nvfp4(x, square=True)
    assert [float(rows[0, 1]), float(rows[1, 1]) > 0.9, float(rows[0, 16]) > 0.9] == [0.0, True, True]
    assert [float(squares[15, 15]), float(squares[16, 0]) > 0.9, float(squares[0, 16]) > 0.9] == [0.0, True, True]


def test_nvfp4_keeps_what_it_can_write_and_small_blocks_become_zero() -> None:
    """The largest number 6 x 448 makes the tensor's scale 1; each block holds E2M1 numbers times an E4M3 scale."""
    codes = torch.tensor([*E2M1_NUMBERS, *(-value for value in E2M1_NUMBERS)])
    scales = torch.tensor([448.0, 1.0, 0.4375, 2.0**-9])[:, None]
    assert torch.equal(q.nvfp4(codes * scales), codes * scales)
    x = torch.full((1, 32), 1e-12)
    x[0, 0] = 1e6
    found = q.nvfp4(x)
    assert float(found[0, 16:].abs().max()) == 0.0
    assert bool(found.isfinite().all())


@pytest.mark.parametrize(
    "quantise",
    [lambda x: q.per_tensor(x, q.E4M3), q.fp8_block, q.mxfp8, q.nvfp4, lambda x: q.nvfp4(x, square=True)],
    ids=["per_tensor", "fp8_block", "mxfp8", "nvfp4", "nvfp4_2d"],
)
def test_zeros_stay_zero_and_tiny_or_huge_tensors_stay_finite(quantise: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert torch.equal(quantise(torch.zeros(128, 128)), torch.zeros(128, 128))
    for size in (1e-30, 1e30):
        x = normal(128, 128) * size
        assert float((quantise(x) - x).double().norm() / x.double().norm()) < 0.2


@pytest.mark.parametrize("block", [lambda x: q.mxfp8(x), lambda x: q.nvfp4(x), lambda x: q.fp8_block(x)])
def test_a_dimension_that_is_no_multiple_of_the_block_is_refused(block: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="pad it first"):
        block(torch.ones(8, 24))


def test_the_hadamard_transform_is_orthonormal_and_spreads_an_outlier() -> None:
    signs = torch.randint(0, 2, (16,), generator=chance()) * 2.0 - 1.0
    matrix = q.hadamard(torch.eye(16), signs)
    assert torch.allclose(matrix @ matrix.t(), torch.eye(16), atol=1e-6)
    assert torch.allclose(matrix.abs(), torch.full((16, 16), 0.25))
    a, b = normal(32, 64), normal(48, 64, seed=1)
    turned = q.hadamard(a, signs) @ q.hadamard(b, signs).t()
    assert torch.allclose(turned, a @ b.t(), atol=1e-4)
    x = torch.zeros(2, 32)
    x[1, 7] = 16.0
    turned = q.hadamard(x, -torch.ones(16))
    assert torch.equal(turned[1].abs(), torch.tensor([4.0] * 16 + [0.0] * 16))
    assert float(turned[0].abs().sum()) == 0.0


@pytest.mark.parametrize("shape", [(256, 256, 128), (384, 128, 256)], ids=str)
@pytest.mark.parametrize("recipe", RECIPE_NAMES)
def test_each_recipe_shows_an_error_within_its_band(recipe: Recipe, shape: tuple[int, int, int]) -> None:
    """A band that a format only just fits would fail on other shapes: a fifth is left on either side."""
    tokens, inner, outer = shape
    errors = q.expected_errors(
        recipe, normal(tokens, inner), normal(outer, inner, seed=1), normal(tokens, outer, seed=2)
    )
    assert errors.keys() == {*PASSES}
    band = ERROR_BANDS[recipe]
    assert all(band.low * 1.2 < error < band.high / 1.2 for error in errors.values())


@pytest.mark.parametrize(
    ("claimed", "ran"), [("nvfp4", "fp8_current"), ("nvfp4", "mxfp8"), ("fp8_current", "bf16"), ("mxfp8", "bf16")]
)
def test_a_silent_fallback_is_too_exact_for_the_claimed_recipe(claimed: Recipe, ran: Recipe) -> None:
    errors = q.expected_errors(ran, normal(128, 128), normal(128, 128, seed=1), normal(128, 128, seed=2))
    assert {numeric_verdict(claimed, error) for error in errors.values()} == {"too_exact"}
