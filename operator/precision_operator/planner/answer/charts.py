"""The plan's figures: when jobs run and are due, which pools they use, what they draw, what other choices would cost.

The first three share one axis of dates, so that a job, its pool and the site's power can be read one above the other.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from precision_api.kinds.capacity_plan import PlanStatus
from precision_operator.drawing import svg
from precision_operator.drawing.figure import PARTS, RECIPE_COLOURS, Figure
from precision_operator.planner.answer.document import AT_LEAST, power_scope
from precision_operator.planner.answer.planning import PlanAnswer
from precision_operator.planner.answer.readable import readable_days, readable_watts
from precision_operator.planner.inputs.quantities import WATTS_PER_MEGAWATT
from precision_operator.planner.rates.pool_sizes import idle_watts
from precision_operator.planner.solving.options import Option
from precision_operator.planner.solving.schedule import JobSlot, peak, watts

LEFT, RIGHT, TOP = 44, 14, 8
JOBS_DRAWN, POOLS_DRAWN = 40, 8
"""The jobs with most GPU hours and the pools with most GPUs in use; the table has all."""
MOST_POINTS = 400
"""Points of a chart; more can't be told apart."""
NAME_CUT, POOL_CUT = 26, 22
HOURS_BELOW_DAYS = 3.0
"""A plan that is shorter is told in hours."""
_figure = partial(Figure, source="this plan; where its rates come from is listed below.")
_STEPS = (1 / 24, 0.125, 0.25, 0.5, 1, 2, 5, 7, 14, 30, 60, 90, 182.5, 365, 730)
"""Days between two dates of an axis."""
_USED = PARTS[0]
Steps = list[tuple[float, float]]
"""(day, level from then on)"""


def watermark(status: PlanStatus) -> str:
    """What is written across each picture: the plan's data where it is not this hardware's own."""
    return next((word for word in ("SIMULATED", "REPLAYED") if word in (status.data or "")), "")


@dataclass(frozen=True)
class Calendar:
    """The axis of dates that the figures share: from the plan's start to the end of the last band or deadline."""

    start: datetime
    days: float

    @property
    def across(self) -> svg.Scale:
        """Days from the start to places on the paper."""
        return svg.Scale(0, self.days, LEFT, svg.WIDTH - RIGHT)

    def date(self, days: float) -> str:
        """The day (`3 Jan`); within a plan of a few days the hour."""
        at = self.start + timedelta(days=days)
        return f"{at:%a %H:%M}" if days <= self.days < HOURS_BELOW_DAYS else f"{at.day} {at:%b}"

    def axis(self, top: float, bottom: float) -> str:
        """Grid lines with their dates, and the years below them."""
        across = self.across
        parts = [
            svg.line(across(at), top, across(at), bottom, svg.GRID)
            + svg.words(across(at), bottom + 14, self.date(at), "middle", svg.SMALL, svg.FAINT)
            for at in self._marks()
        ]
        first, last = self.start, self.start + timedelta(days=self.days)
        years = f"{first.year}" if first.year == last.year else f"{first.year} to {last.year}"
        title = f"{first:%-d %b %Y} to {last:%-d %b}, UTC" if self.days < HOURS_BELOW_DAYS else f"{years}, UTC"
        return "".join(parts) + svg.words(
            (across.start + across.end) / 2, bottom + 28, title, "middle", svg.SMALL, svg.FAINT
        )

    def _marks(self) -> Iterator[float]:
        """Round moments: midnights, or full hours in a short plan."""
        step = next((length for length in _STEPS if self.days / length <= 5), self.days / 4)
        unit = 1.0 if step >= 1 else step
        midnight = self.start.replace(hour=0, minute=0, second=0, microsecond=0)
        past = (self.start - midnight) / timedelta(days=1)
        at = math.ceil(past / unit - 1e-9) * unit - past
        while at <= self.days:
            yield at
            at += step


def calendar(answer: PlanAnswer) -> Calendar:
    """Long enough for every band, and for deadlines up to as far again as the last job."""
    assert answer.terms is not None
    assert answer.solution is not None
    slots = answer.solution.slots
    last = max(slot.start + max(slot.option.days_high, slot.option.days) for slot in slots)
    due = [at for slot in slots if (at := slot.option.job.deadline_days) is not None and at <= 2 * last]
    return Calendar(answer.terms.start, max([last, *due]) * 1.02)


def gantt(status: PlanStatus, answer: PlanAnswer, mark: str) -> Iterator[Figure]:
    """A bar for each job in its recipe's colour, a pale one to the high end of its band, and a mark where it is due."""
    if answer.solution is None:
        return
    slots = sorted(answer.solution.slots, key=lambda slot: -slot.option.gpu_hours)[:JOBS_DRAWN]
    slots.sort(key=lambda slot: (slot.start, slot.option.job.name))
    dates = calendar(answer)
    promised = {job.name: job.deadline for job in status.jobs}
    parts = [
        _job(slot, dates, promised.get(slot.option.job.name, "none"), TOP + 50 * row) for row, slot in enumerate(slots)
    ]
    y = TOP + 50 * len(slots)
    more = len(answer.solution.slots) - len(slots)
    rest = f" The {JOBS_DRAWN} jobs with most GPU hours; the table has {more} more." if more else ""
    yield _figure(
        key="gantt",
        title="When each job runs",
        svg=svg.drawing(y + 34, dates.axis(TOP, y) + "".join(parts), "Jobs by date, with their deadlines", mark),
        caption="Bars in the colours of their recipes, to the expected end; pale: to the high end of the 90 % band. "
        f"Triangle: the deadline, red where it can't be promised.{bounds_words(slot.option for slot in slots)}{rest}",
    )


def _job(slot: JobSlot, dates: Calendar, deadline: str, top: float) -> str:
    option, across = slot.option, dates.across
    start, end, high = (across(slot.start + days) for days in (0, option.days, max(option.days_high, option.days)))
    due = option.job.deadline_days
    least = AT_LEAST if option.source.upper_bound else ""
    title = (
        f"{option.job.name}: {option.gpus:,} GPUs of {option.pool.name}, {_recipe(option)}, "
        f"{least}{readable_days(option.days, option.days_low, option.days_high)}"
    )
    span = f"{dates.date(slot.start)} to {dates.date(slot.start + option.days)}"
    where = f"{option.gpus:,} x {_cut(option.pool.name, POOL_CUT)}, {option.recipe}, {span}"
    colour, y = RECIPE_COLOURS[option.recipe], top + 32
    parts = [
        svg.words(2, top + 13, _cut(option.job.name, NAME_CUT), size=svg.NORMAL),
        svg.words(2, top + 26, where, size=svg.SMALL, fill=svg.FAINT),
        svg.box(start, y + 2, high - start, 6, colour, fill_opacity=0.4),
        svg.box(start, y, max(end - start, 1.5), 10, colour, title),
    ]
    if due is not None:
        late = deadline == "notPromised"
        ink = svg.FAIL if late else svg.INK
        text = f"due {dates.date(due)}{', not promised' if late else ''}"
        parts.append(svg.words(svg.WIDTH - 2, top + 13, text, "end", svg.SMALL, ink))
        if due <= dates.days:
            parts.append(svg.element("path", d=f"M{across(due):.2f} {y + 10:.2f}l-4 -9h8z", fill=ink, stroke=ink))
    return "".join(parts)


def bounds_words(options: Iterable[Option]) -> str:
    """What a caption adds where figures are bounds."""
    rows = sorted({f"{o.pool.name} {o.recipe}" for o in options if o.source.upper_bound})
    of = f" of {', '.join(rows)}" if rows else ""
    return f" Days, ends and costs{of} are at least these: communication is not in the rates." if rows else ""


def _recipe(option: Option) -> str:
    """Its title; marked where the chip emulates it."""
    sample = option.source.sample
    return f"{option.title} (emulated)" if sample is not None and "emulated" in sample.marks else option.title


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _steps(slots: Sequence[JobSlot], value: Callable[[Option], float], floor: float = 0.0) -> Steps:
    """How much is in use from each moment on at which that changes."""
    times = sorted({0.0, *(slot.start for slot in slots), *(slot.end for slot in slots)})
    return [(at, floor + sum(value(s.option) for s in slots if s.start <= at < s.end)) for at in times]


def pool_use(answer: PlanAnswer, mark: str) -> Iterator[Figure]:
    """GPUs in use over time: one strip for each pool, as high as the pool is large."""
    if answer.solution is None:
        return
    dates, parts, rows, y = calendar(answer), [], [], float(TOP)
    slots = answer.solution.slots
    used = [(pool, [slot for slot in slots if slot.option.pool.name == pool.name]) for pool in answer.pools]
    most = {pool.name: round(peak(mine, lambda option: float(option.gpus))) for pool, mine in used}
    for pool, mine in sorted(used, key=lambda row: -most[row[0].name])[:POOLS_DRAWN]:
        use = f"at most {most[pool.name]:,} of {pool.gpus:,} GPUs"
        height = svg.Scale(0, max(pool.gpus, most[pool.name], 1), y + 62, y + 18)
        top = height(pool.gpus)
        parts += [
            svg.words(2, y + 11, f"{_cut(pool.name, POOL_CUT)}: {use}", size=svg.SMALL),
            _area(_steps(mine, lambda option: option.gpus), dates, height),
            svg.line(LEFT, top, svg.WIDTH - RIGHT, top, svg.FAINT, stroke_dasharray="5 3"),
            svg.words(LEFT - 4, y + 22, f"{pool.gpus:,}", "end", svg.SMALL, svg.FAINT),
            svg.words(LEFT - 4, y + 62, "0", "end", svg.SMALL, svg.FAINT),
        ]
        rows.append((pool.name, f"{pool.gpus:,}", f"{most[pool.name]:,}"))
        y += 74
    unused = len(answer.pools) - len(rows)
    rest = f" {unused} pools more are not drawn." if unused else ""
    yield _figure(
        key="pools",
        title="GPUs in use, by pool",
        svg=svg.drawing(y + 28, dates.axis(TOP, y - 6) + "".join(parts), "GPUs in use by pool and date", mark),
        caption=f"Dashed: all GPUs of the pool that a plan may use.{rest}",
        head=("pool", "GPUs", "in use at most"),
        rows=tuple(rows),
    )


def _area(steps: Steps, dates: Calendar, height: svg.Scale) -> str:
    """A filled outline of steps, from the first to the last moment."""
    across = dates.across
    d = f"M{across(0):.2f} {height(0):.2f}"
    for at, level in steps:
        d += f"H{across(at):.2f}V{height(level):.2f}"
    return svg.element("path", d=f"{d}V{height(0):.2f}z", fill=_USED, fill_opacity=0.45, stroke=_USED)


def power(answer: PlanAnswer, mark: str) -> Iterator[Figure]:
    """Power of the site by enforced limits over time, idle GPUs included, and the budget as a line."""
    if answer.solution is None or answer.terms is None:
        return
    slots = answer.solution.slots
    missing = sorted({slot.option.pool.name for slot in slots if slot.option.limit_watts is None})
    if missing:
        why = f"Not drawn: the enforced limits of {', '.join(missing)} are not known. Set pools[].powerLimitWatts."
        yield _figure(key="power", title="Power of the site", svg="", caption=why)
        return
    idle = sum(idle_watts(pool, answer.terms) for pool in answer.pools)
    steps = _steps(slots, watts, idle)
    limit = answer.terms.limits.watts
    budget = None if limit is None else limit + idle
    most = max(level for _, level in steps)
    size, unit = (WATTS_PER_MEGAWATT, "MW") if max(most, budget or 0) >= WATTS_PER_MEGAWATT else (1e3, "kW")
    upward = svg.Scale(0, max(most, budget or 0.0, 1.0) * 1.08 / size, 164, 26)
    dates = calendar(answer)
    inside = svg.left_axis(upward, LEFT, svg.WIDTH - RIGHT, unit) + dates.axis(26, 164)
    inside += _area([(at, level / size) for at, level in steps], dates, upward)
    if budget is not None:
        y = upward(budget / size)
        inside += svg.line(LEFT, y, svg.WIDTH - RIGHT, y, svg.FAIL, stroke_dasharray="6 4", stroke_width=1.5)
        inside += svg.words(svg.WIDTH - RIGHT, y - 4, f"budget {readable_watts(budget)}", "end", svg.SMALL, svg.FAIL)
    yield _figure(
        key="power",
        title=f"Power of the site, at most {readable_watts(most)}",
        svg=svg.drawing(198, inside, "Power of the site by date", mark),
        caption=f"By enforced limits, {power_scope(answer.notes) or 'with PUE, overhead and what idle GPUs draw'}.",
    )


def cost_against_time(answer: PlanAnswer, mark: str) -> Iterator[Figure]:
    """For the job with the most GPU hours: every choice, those that nothing beats joined, the plan's own ringed."""
    if answer.solution is None:
        return
    chosen = max((slot.option for slot in answer.solution.slots), key=lambda option: option.gpu_hours)
    offer = next(offer for offer in answer.offers if offer.job.name == chosen.job.name)
    priced = all(option.dollars is not None for option in offer.options)
    front = _front(offer.options, priced)
    ordered = sorted(offer.options, key=lambda option: option.days)
    reach = max(option.days for option in (*front, chosen)) * 1.1
    others = [option for option in ordered[:: max(1, -(-len(ordered) // MOST_POINTS))] if option.days <= reach]
    shown = [*others, *front, chosen]
    values = [_value(option, priced) for option in shown]
    across = svg.Scale(0, reach, LEFT + 10, svg.WIDTH - RIGHT)
    upward = svg.Scale(min(values) * 0.95, max(values) * 1.05, 214, 26)

    def place(option: Option) -> tuple[float, float]:
        return across(option.days), upward(_value(option, priced))

    unit = "dollars" if priced else "GPU hours (no price is known)"
    axes = svg.bottom_axis(across, 26, 214, "days") + svg.left_axis(upward, LEFT + 10, svg.WIDTH - RIGHT, unit)
    joined = "".join(f"{'L' if i else 'M'}{x:.2f} {y:.2f}" for i, (x, y) in enumerate(map(place, front)))
    parts = [svg.element("path", d=joined, fill="none", stroke=svg.INK)]
    parts += [_dot(option, place(option), 2.5 if option in others else 4.5, priced) for option in shown]
    x, y = place(chosen)
    parts.append(svg.element("circle", cx=x, cy=y, r=8, fill="none", stroke=svg.INK, stroke_width=2))
    legend, bottom = _legend([option.recipe for option in shown], 256)
    yield _figure(
        key="cost",
        title=f"{chosen.job.name}: {'cost' if priced else 'GPU hours'} against time",
        svg=svg.drawing(bottom, axes + "".join(parts) + legend, "Cost of each choice against its days", mark),
        caption="Each dot is a pool, a recipe and a size, in the recipe's colour. The line joins those that no other "
        "beats in both; the ring is the plan's choice. The axes do not begin at 0 dollars."
        + _paid_words(shown)
        + bounds_words(shown),
        head=("pool", "recipe", "GPUs", "days", unit),
        rows=tuple(_option_row(option, priced) for option in front),
    )


def _paid_words(options: Iterable[Option]) -> str:
    """What a caption of costs adds where GPU hours are paid anyway."""
    paid = any(option.pool.terms.committed_gpu_hours and option.dollars is not None for option in options)
    return " Costs are before committedGPUHours, which the table of jobs takes off." if paid else ""


def _legend(recipes: Collection[str], top: float) -> tuple[str, float]:
    shown = [recipe for recipe in RECIPE_COLOURS if recipe in recipes]
    places = svg.in_lines([22 + 6.6 * len(recipe) for recipe in shown], top)
    parts = [
        svg.element("circle", cx=x + 5, cy=y - 4, r=4.5, fill=RECIPE_COLOURS[recipe])
        + svg.words(x + 14, y, recipe, size=svg.SMALL)
        for recipe, (x, y) in zip(shown, places, strict=True)
    ]
    return "".join(parts), places[-1][1] + 10


def _value(option: Option, priced: bool) -> float:
    return (option.dollars or 0.0) if priced else option.gpu_hours


def _option_row(option: Option, priced: bool) -> tuple[str, ...]:
    bound, unit = ">= " if option.source.upper_bound else "", "$" if priced else ""
    days, cost = f"{bound}{option.days:.2f}", f"{bound}{unit}{_value(option, priced):,.0f}"
    return option.pool.name, _recipe(option), f"{option.gpus:,}", days, cost


def _dot(option: Option, at: tuple[float, float], radius: float, priced: bool) -> str:
    pool, recipe, gpus, days, value = _option_row(option, priced)
    words = f"{gpus} GPUs of {pool}, {recipe}: {days} days, {value}{'' if priced else ' GPU hours'}"
    title = svg.element("title", words)
    return svg.element("circle", title, cx=at[0], cy=at[1], r=radius, fill=RECIPE_COLOURS[option.recipe])


def _front(options: Sequence[Option], priced: bool) -> list[Option]:
    """The options that no other one beats in both days and cost, fastest first."""
    front: list[Option] = []
    for option in sorted(options, key=lambda choice: (choice.days, _value(choice, priced))):
        if not front or _value(option, priced) < _value(front[-1], priced):
            front.append(option)
    return front
