"""The draw of a node's GPUs through one run, with gaps where the sensor gave nothing."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from precision_api.exchange.result import MeasurementResult
from precision_api.facts.plain_text import three_digits
from precision_operator.drawing import svg
from precision_operator.drawing.figure import Figure
from precision_operator.report.facts import Given
from precision_operator.report.figures.figure import of_result

LEFT, RIGHT, TOP, BOTTOM = 44, 12, 24, 164


def power(facts: Given, result: MeasurementResult) -> Iterator[Figure]:
    """The trace, or nothing where the run has none (a CPU, a replay, no sensor)."""
    trace = result.power_trace
    measured = [watts for watts in trace.watts if watts is not None] if trace is not None else []
    if trace is None or not measured:
        return
    gaps = len(trace.watts) - len(measured)
    limit = result.limit_watts
    accuracy = result.sensor.accuracy if result.sensor else "unverified"
    caption = f"A sample every {trace.interval_seconds:g} s from {trace.started_at}; sensor {accuracy}."
    caption += f" {gaps} samples are missing: the hatched times." if gaps else ""
    yield Figure(
        key="power",
        title=f"Power through the run, node {result.node}",
        svg=_drawing(facts, trace.interval_seconds, trace.watts, limit),
        caption=caption + (f" Dashed: enforced limits of all GPUs together, {three_digits(limit)} W." if limit else ""),
        source=of_result(result),
        head=("least, W", "mean, W", "most, W", "limit, W", "samples"),
        rows=(
            (
                f"{min(measured):,.0f}",
                f"{sum(measured) / len(measured):,.0f}",
                f"{max(measured):,.0f}",
                f"{limit:,.0f}" if limit else "–",
                f"{len(measured)} of {len(trace.watts)}",
            ),
        ),
    )


def _drawing(facts: Given, interval: float, watts: tuple[float | None, ...], limit: float | None) -> str:
    across = svg.Scale(0, max(interval * (len(watts) - 1), interval), LEFT, svg.WIDTH - RIGHT)
    upward = svg.Scale(0, max(limit or 0, *filter(None, watts), 0) * 1.06, BOTTOM, TOP)
    points = [None if value is None else (across(i * interval), upward(value)) for i, value in enumerate(watts)]
    parts = [
        svg.bottom_axis(across, TOP, BOTTOM, "seconds since the run began"),
        svg.left_axis(upward, LEFT, svg.WIDTH - RIGHT, "watts of all GPUs"),
        *(_missing(across, upward, interval, run) for run in _gaps(watts)),
        svg.polyline(points, "#0072B2"),
    ]
    if limit:
        y, right = upward(limit), svg.WIDTH - RIGHT
        parts.append(svg.line(LEFT, y, right, y, svg.FAINT, stroke_dasharray="5 3"))
        parts.append(svg.words(right, y - 3, "limit", "end", svg.SMALL, svg.FAINT))
    return svg.drawing(BOTTOM + 32, "".join(parts), "Power through the run", facts.watermark)


def _gaps(watts: Sequence[float | None]) -> Iterator[tuple[int, int]]:
    """First and last place of each run of samples that are missing."""
    for is_read, run in groupby(enumerate(watts), key=lambda place_and_watts: place_and_watts[1] is not None):
        if not is_read:
            places = [place for place, _ in run]
            yield places[0], places[-1]


def _missing(across: svg.Scale, upward: svg.Scale, interval: float, run: tuple[int, int]) -> str:
    """A hatched box from the last known sample to the next: nothing was read, which is not 0 W."""
    first, last = across((run[0] - 1) * interval), across((run[1] + 1) * interval)
    count = run[1] - run[0] + 1
    box = svg.box(first, TOP, last - first, upward(0) - TOP, svg.MISSING, f"{count} samples missing")
    room = last - first > 60
    return box + (svg.words((first + last) / 2, TOP + 14, "no samples", "middle", svg.SMALL, svg.FAINT) if room else "")
