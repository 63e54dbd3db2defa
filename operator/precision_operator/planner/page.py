"""The answer as one HTML page: table, Gantt chart, cost against time, power over time. Nothing is loaded from outside.

Charts are SVG of a fixed set of shapes; all text is escaped; colours work in light and dark. Figures stand in the
charts' titles, so that a reader without colours or a screen has them too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from precision_api.capacity_plan import PlanStatus
from precision_operator.planner.options import Option
from precision_operator.planner.planning import Answer
from precision_operator.planner.quantities import WATTS_PER_MEGAWATT
from precision_operator.planner.schedule import Slot, watts
from precision_operator.planner.table import lines, wide

WIDTH, LEFT, RIGHT, TOP, BAR = 900, 170, 20, 24, 24
HEIGHT = 280
COLOURS = ("#2f6fb0", "#b0562f", "#3f8f4f", "#8a5ab0", "#b08f2f", "#2f9aa0", "#b03f6f", "#6f6f6f")
MOST_POINTS = 400
"""Points of a chart; more can't be told apart."""
_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #8886; text-align: left; white-space: nowrap; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; fill: currentColor; }
.axis { stroke: currentColor; opacity: .4; } .warn { border: 2px solid #c60; padding: .6rem 1rem; font-weight: 600; }
"""


def page(name: str, status: PlanStatus, answer: Answer) -> str:
    """The whole page."""
    body = [f"<h1>Capacity plan {escape(name)}</h1>", *_warning(status)]
    if status.recommendation:
        body.append(f"<p><strong>{escape(status.recommendation)}</strong></p>")
    if answer.solution is not None:
        slots = sorted(answer.solution.slots, key=lambda slot: (slot.start, slot.option.job.name))
        body += [
            "<h2>Jobs</h2>",
            _table([wide(job) for job in status.jobs]),
            "<h2>When</h2>",
            _gantt(slots),
            "<h2>Cost against time</h2>",
            _pareto(answer, slots),
            "<h2>Power over time</h2>",
            _power(slots, answer),
        ]
    told = [line for line in lines(status) if line != status.recommendation]
    body.append("<h2>What stands behind it</h2><ul>" + "".join(f"<li>{escape(line)}</li>" for line in told) + "</ul>")
    sources = "".join(f"<li>{escape(job.name)}: {escape(job.source)}</li>" for job in status.jobs)
    body.append(f"<h2>Where the rates come from</h2><ul>{sources}</ul>" if sources else "")
    title = f"Capacity plan {escape(name)}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body>{''.join(body)}</body></html>"
    )


def _warning(status: PlanStatus) -> Iterator[str]:
    """Notes that begin in capitals are doubts about the data."""
    for note in status.notes:
        if note.split(":")[0].isupper():
            yield f'<p class="warn">{escape(note)}</p>'


def _table(rows: Sequence[dict[str, object]]) -> str:
    head = "".join(f"<th>{escape(str(key))}</th>" for key in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(str(v))}</td>" for v in row.values()) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _svg(height: float, title: str, parts: Iterable[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="axis" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _colours(slots: Sequence[Slot]) -> dict[str, str]:
    pools = sorted({slot.option.pool.name for slot in slots})
    return {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(pools)}


def _days_axis(most: float, bottom: float) -> Iterator[str]:
    for i in range(6):
        x = LEFT + (WIDTH - LEFT - RIGHT) * i / 5
        yield _line(x, TOP - 6, x, bottom)
        yield _text(x, TOP - 10, f"{most * i / 5:.3g} d", "middle")


def _gantt(slots: Sequence[Slot]) -> str:
    """A bar for each job, and a thin one to the high end of its band."""
    most = max(slot.start + max(slot.option.days_high, slot.option.days) for slot in slots)
    scale = (WIDTH - LEFT - RIGHT) / most
    colours = _colours(slots)
    bottom = TOP + BAR * len(slots) + 4
    parts = [*_days_axis(most, bottom)]
    for i, slot in enumerate(slots):
        option, y = slot.option, TOP + BAR * i
        told = (
            f"{option.job.name}: {option.gpus} GPUs of {option.pool.name}, {option.recipe}, "
            f"{option.days:.3g} days ({option.days_low:.3g} to {option.days_high:.3g})"
        )
        x, wide_to = LEFT + slot.start * scale, option.days_high * scale
        parts.append(_text(LEFT - 8, y + 15, option.job.name[:24], "end"))
        parts.append(
            f'<g><title>{escape(told)}</title><rect x="{x:.1f}" y="{y + 8}" width="{wide_to:.1f}" height="5" '
            f'fill="{colours[option.pool.name]}" opacity=".45"/><rect x="{x:.1f}" y="{y + 3}" '
            f'width="{max(option.days * scale, 1):.1f}" height="15" fill="{colours[option.pool.name]}"/></g>'
        )
        label = f"{option.gpus} x {option.pool.name} {option.recipe}"[:60]
        late = x > WIDTH * 0.6
        parts.append(_text(x - 4 if late else x + 4, y + 15, label, "end" if late else "start"))
    return _svg(bottom + 6, "Jobs over time; thin bars reach to the high end of the band", parts)


def _pareto(answer: Answer, slots: Sequence[Slot]) -> str:
    """For the job with the most GPU hours: every choice, those on the curve joined, the plan's own ringed."""
    slot = max(slots, key=lambda each: each.option.gpu_hours)
    offer = next(offer for offer in answer.offers if offer.job.name == slot.option.job.name)
    priced = all(option.dollars is not None for option in offer.options)
    figure = _dollars if priced else _gpu_hours
    unit = "dollars" if priced else "GPU hours (there is no price)"
    front = _front(offer.options, figure)
    ordered = sorted(offer.options, key=lambda option: option.days)
    others = ordered[:: max(1, -(-len(ordered) // MOST_POINTS))]
    reach = max(option.days for option in (*front, slot.option)) * 1.1
    shown = [*front, slot.option, *(option for option in others if option.days <= reach)]
    top = max(figure(option) for option in shown) * 1.05
    floor = min(figure(option) for option in shown) * 0.95

    def place(option: Option) -> tuple[float, float]:
        share = (figure(option) - floor) / (top - floor)
        return LEFT + option.days / reach * (WIDTH - LEFT - RIGHT), HEIGHT - 20 - share * (HEIGHT - 20 - TOP)

    parts = [*_days_axis(reach, HEIGHT - 20)]
    for i in range(5):
        y = HEIGHT - 20 - i / 4 * (HEIGHT - 20 - TOP)
        parts.append(_text(LEFT - 8, y + 4, f"{floor + (top - floor) * i / 4:,.4g}", "end"))
    parts += [_dot(place(o), "#888", 2.5, _named(o, figure)) for o in shown]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, front))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[0]}" stroke-width="2"/>')
    parts += [_dot(place(o), COLOURS[0], 4, _named(o, figure)) for o in front]
    x, y = place(slot.option)
    parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" stroke="{COLOURS[1]}" stroke-width="3"/>')
    title = f"Job {slot.option.job.name}: {unit} against days; the line is the best of each, the ring is the plan"
    return f"<p>{escape(title)}.</p>" + _svg(HEIGHT, title, parts)


def _dollars(option: Option) -> float:
    return option.dollars or 0.0


def _gpu_hours(option: Option) -> float:
    return option.gpu_hours


def _named(option: Option, figure: object) -> str:
    money = "" if option.dollars is None else f", {option.dollars:,.0f} dollars"
    return f"{option.gpus} GPUs of {option.pool.name}, {option.recipe}: {option.days:.3g} days{money}"


def _dot(at: tuple[float, float], colour: str, radius: float, title: str) -> str:
    place = f'cx="{at[0]:.1f}" cy="{at[1]:.1f}"'
    return f'<circle {place} r="{radius}" fill="{colour}"><title>{escape(title)}</title></circle>'


def _front(options: Sequence[Option], figure: object) -> list[Option]:
    """The options that no other one beats in both days and cost, fastest first."""
    value = _dollars if figure is _dollars else _gpu_hours
    found: list[Option] = []
    for option in sorted(options, key=lambda each: (each.days, value(each))):
        if not found or value(option) < value(found[-1]):
            found.append(option)
    return found


def _power(slots: Sequence[Slot], answer: Answer) -> str:
    """Facility power by enforced limits, as steps; the budget is a line."""
    if any(slot.option.limit_watts is None for slot in slots):
        return "<p>The enforced limits of some GPUs are not known, so their power is not either.</p>"
    limit = answer.terms.limits.watts if answer.terms else None
    times = sorted({0.0, *(slot.start for slot in slots), *(slot.end for slot in slots)})
    levels = [sum(watts(s.option) for s in slots if s.start <= t < s.end) / WATTS_PER_MEGAWATT for t in times]
    top = max(*levels, (limit or 0) / WATTS_PER_MEGAWATT, 1e-9) * 1.1
    last = times[-1]

    def x(days: float) -> float:
        return LEFT + days / last * (WIDTH - LEFT - RIGHT)

    def y(megawatts: float) -> float:
        return HEIGHT - 20 - megawatts / top * (HEIGHT - 20 - TOP)

    path = f"M {x(0):.1f} {y(levels[0]):.1f}"
    for before, time, level in zip(levels, times[1:], levels[1:], strict=False):
        path += f" L {x(time):.1f} {y(before):.1f} L {x(time):.1f} {y(level):.1f}"
    parts = [*_days_axis(last, HEIGHT - 20)]
    parts += [_text(LEFT - 8, y(top * i / 4) + 4, f"{top * i / 4:.3g} MW", "end") for i in range(5)]
    parts.append(f'<path d="{path}" fill="none" stroke="{COLOURS[0]}" stroke-width="2"/>')
    if limit:
        level = y(limit / WATTS_PER_MEGAWATT)
        parts.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level:.1f}" y2="{level:.1f}" stroke="{COLOURS[1]}" '
            'stroke-width="2" stroke-dasharray="6 4"><title>power budget</title></line>'
        )
    return _svg(HEIGHT, f"Facility power by enforced limits, at most {max(levels):.3g} MW", parts)
