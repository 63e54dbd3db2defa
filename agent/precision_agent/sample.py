"""Takes the samples of a run: palindrome after palindrome, until all are done or somebody says stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from precision_agent.backends.protocol import Backend
from precision_agent.cases import Arm, Case, Cases, GemmCase, refusal_of
from precision_agent.order import palindromes
from precision_api.request import Timing
from precision_api.result import Failure

Key = tuple[str, Case]
"""An arm's label and a case."""
LEAST_PALINDROMES = 2
"""One palindrome has no spread, so no interval, and a number without an interval is not a result."""

Stop = Callable[[], Failure | None]
"""Asked before each sample: why the run must end now, or None."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Seconds of one call for each arm and case, one value a complete palindrome; a failed one has its reason instead.

    `ended` tells why there are fewer palindromes than asked for.
    """

    passes: int
    seconds: Mapping[Key, tuple[float, ...]]
    failures: Mapping[Key, Failure]
    ended: Failure | None = None

    def of(self, arm: Arm, case: Case) -> tuple[float, ...] | Failure:
        """The values of one arm and case, or why there are none."""
        failure = self.failures.get((arm.label, case))
        if failure:
            return failure
        values = self.seconds.get((arm.label, case), ())
        return values or self.ended or Failure(reason="not_measured", message="no complete palindrome")

    def so_far(self) -> Samples:
        """These samples as a partial run's: what is published in case that the rest never comes."""
        return replace(self, ended=Failure(reason="unfinished", message=f"{self.passes} palindromes were complete"))


@dataclass(slots=True)
class _Taken:
    """The growing form of `Samples`."""

    seconds: dict[Key, list[float]] = field(default_factory=dict)
    failures: dict[Key, Failure] = field(default_factory=dict)
    passes: int = 0

    def frozen(self, ended: Failure | None) -> Samples:
        return Samples(
            passes=self.passes,
            seconds={key: tuple(values) for key, values in self.seconds.items() if key not in self.failures},
            failures=dict(self.failures),
            ended=ended,
        )


def take(
    backend: Backend,
    cases: Cases,
    arms: tuple[Arm, ...],
    timing: Timing,
    stop: Stop,
    after_pass: Callable[[Samples], None] = lambda samples: None,
) -> Samples:
    """Measures `cases` for `arms`; an unfinished palindrome is thrown away, for its pairs are incomplete."""
    taken = _Taken(failures=_impossible(cases, arms))
    for palindrome in palindromes(arms, timing.passes, timing.seed):
        visits, ended = _palindrome(backend, cases, palindrome, timing, stop, taken.failures)
        if ended:
            return taken.frozen(ended)
        for key, values in visits.items():
            taken.seconds.setdefault(key, []).append(sum(values) / len(values))
        taken.passes += 1
        after_pass(taken.frozen(None))
    return taken.frozen(None)


def _impossible(cases: Cases, arms: tuple[Arm, ...]) -> dict[Key, Failure]:
    refused = {(arm.label, case): refusal_of(case, arm) for arm in arms for case in cases.all}
    return {key: failure for key, failure in refused.items() if failure}


def _palindrome(
    backend: Backend,
    cases: Cases,
    palindrome: tuple[Arm, ...],
    timing: Timing,
    stop: Stop,
    failures: dict[Key, Failure],
) -> tuple[dict[Key, list[float]], Failure | None]:
    """The samples of one palindrome, two a key, and why it broke off; adds to `failures`."""
    visits: dict[Key, list[float]] = {}
    share = timing.segment_seconds / max(1, len(cases.gemms))
    for arm in palindrome:
        if timing.discard_seconds:
            backend.settle(arm, timing.discard_seconds)
        for case in cases.all:
            ended = stop()
            if ended:
                return visits, ended
            key = (arm.label, case)
            if key in failures:
                continue
            seconds = backend.measure(case, arm, share if isinstance(case, GemmCase) else timing.segment_seconds)
            if isinstance(seconds, Failure):
                failures[key] = seconds
            else:
                visits.setdefault(key, []).append(seconds)
    return visits, None
