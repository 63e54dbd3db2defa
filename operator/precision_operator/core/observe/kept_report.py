"""What is kept of a report's status: a frozen record of some 1.5 KiB, read by the attributes of a ReportStatus.

What many reports have in common (a run's workload, a rack's hardware, which figures there are) is held once, in models
that lack the fields which each node has of its own; all figures are one text. Only the next result is made of what is
left out: history, recommendation, the rates that a verdict averages. Columns are for kubectl.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, make_dataclass
from functools import lru_cache
from operator import attrgetter
from sys import intern
from types import FunctionType
from typing import Any, ClassVar, TypeVar, cast

from pydantic import BaseModel

from precision_api.exchange.request import Mode
from precision_api.facts.schema import Decimal
from precision_api.kinds import report
from precision_api.kinds.profile import Condition
from precision_api.kinds.report import RecipeReport, ReportStatus

MOST_SHARED = 10_000
_FIELDS, _INTEGERS = RecipeReport.model_fields, {"model_memory_bytes", "allocated_peak_bytes"}
_FIGURES = (*(name for name, of in _FIELDS.items() if of.annotation == Decimal | None), *sorted(_INTEGERS))
_WORDS = tuple(name for name in _FIELDS if name not in (*_FIGURES, "gemm_speedup"))
_figures_of, _words_of = attrgetter(*_FIGURES), attrgetter(*_WORDS)
_Names = tuple[str, ...]
Model = TypeVar("Model", bound=BaseModel)


@lru_cache(MOST_SHARED)
def once(make: Callable[..., Any], *values: Hashable) -> Any:
    """What is made of these values, once for all that have the same."""
    return make(*values)


def _blank(model: type[BaseModel], names: _Names, values: tuple[object, ...]) -> BaseModel:
    """A model that has these fields alone."""
    return model.model_construct(**dict[str, Any](zip(names, values, strict=True)))


def _blank_rows(rows: Iterable[tuple[tuple[object, ...], _Names, tuple[Mode, ...]]]) -> "KeptWords":
    return KeptWords((cast(RecipeReport, _blank(RecipeReport, _WORDS, of[0])), of[1], of[2]) for of in rows)


@dataclass(frozen=True, slots=True)
class _Part:
    """Stands in for a model: the fields of one node, in `common` those that many nodes have; LEFT_OUT is unreadable."""

    COMMON: ClassVar[_Names] = ()
    LEFT_OUT: ClassVar[_Names] = ()
    common: Any

    def __getattr__(self, name: str) -> Any:
        if name in self.LEFT_OUT or name.startswith(("_", "model_")):
            raise AttributeError(f"{name} of a {type(self.common).__name__} is not kept: read the report")
        return getattr(self.common, name)


class KeptWords(tuple[tuple[RecipeReport, _Names, tuple[Mode, ...]], ...]):
    """Rows without their figures, with the names of these, and the modes of their GEMMs' speedups, which follow."""

    __hash__ = object.__hash__  # those that are equal are the same object as a rule


@dataclass(frozen=True, slots=True)
class KeptResults:
    """Figures by recipe."""

    rows: KeptWords
    figures: str
    """Those of each row in turn."""

    def __iter__(self) -> Iterator[RecipeReport]:
        texts = iter(self.figures.split())
        for row, names, modes in self.rows:
            fields: dict[str, Any] = dict(zip(names, texts, strict=False))  # `names` end first, and take no text then
            fields |= {name: int(fields[name]) for name in _INTEGERS & fields.keys()}
            yield row.model_copy(update=fields | {"gemm_speedup": dict(zip(modes, texts, strict=False))})


def _part(model: type[BaseModel], of_node: str, left_out: str = "") -> type[_Part]:
    """What stands in for a model of which these fields are one node's, and those left out."""
    names, less = of_node.split(), tuple(left_out.split())
    methods: dict[str, Any] = {name: of for name, of in vars(model).items() if isinstance(of, property | FunctionType)}
    methods |= {"COMMON": tuple(n for n in model.model_fields if n not in (*names, *less)), "LEFT_OUT": less}
    return make_dataclass(model.__name__, names, bases=(_Part,), namespace=methods, frozen=True, slots=True)


_COLUMNS = "best best_recipe best_speedup teraflops_per_gpu tokens_per_joule data"
_PARTS: Mapping[type, type[_Part]] = {
    model: _part(model, *fields)
    for model, *fields in (
        (ReportStatus, "conditions hardware run attempt results acceptance", f"recommendation history {_COLUMNS}"),
        (Condition, "last_transition_time"),
        (report.ReportHardware, "slowest_gpu"),
        (report.ReportMemory, "used_bytes"),
        (report.ReportRun, "finished_at duration_seconds noise_floor gemm_error device_memory detail detail_sha256"),
        (report.ReportAttempt, "basis boot_id started_at finished_at message", "log"),
        (report.AcceptanceRuns, "run", "averages kernels troubles"),
        (report.AcceptanceSubject, "boot_id gpus pci"),
        (report.ReportAcceptance, "decided_at valid_until subject runs checks", "message"),
    )
}


def kept_report(status: ReportStatus) -> ReportStatus:
    """What is kept of the status: it stands in for it, wherever decisions read one."""
    software = status.software and status.software.model_copy(update={"driver": driver_of(status)})
    return cast(ReportStatus, _kept(status.model_copy(update={"software": software})))


def _kept(value: Any) -> Any:
    """What is kept of a field; texts that other reports have as well, as its UUIDs, are held once."""
    if isinstance(value, str):
        return intern(value)
    if isinstance(value, dict):
        return once(dict, tuple(value.items()))
    if isinstance(value, tuple):
        return _results(value) if value and isinstance(value[0], RecipeReport) else tuple(map(_kept, value))
    kind: Any = type(value)
    if (part := _PARTS.get(kind)) is None:
        return value
    common = once(_blank, kind, part.COMMON, tuple(getattr(value, name) for name in part.COMMON))
    return part(common, *(_kept(getattr(value, name)) for name in part.__slots__))


def _results(results: tuple[RecipeReport, ...]) -> KeptResults:
    rows, figures = [], list[str]()
    for row in results:
        present = {name: value for name, value in zip(_FIGURES, _figures_of(row), strict=True) if value is not None}
        rows.append((_words_of(row), tuple(present), tuple(row.gemm_speedup)))
        figures += map(str, (*present.values(), *row.gemm_speedup.values()))
    return KeptResults(once(_blank_rows, tuple(rows)), " ".join(figures))


def whole(status: ReportStatus | None) -> ReportStatus:
    """A status that was kept, as a model, but for what is left out; an empty one where there is none."""
    return cast(ReportStatus, _whole(status)) if status is not None else ReportStatus()


def _whole(value: Any) -> Any:
    if isinstance(value, _Part):
        return value.common.model_copy(update={name: _whole(getattr(value, name)) for name in type(value).__slots__})
    if isinstance(value, tuple | KeptResults):
        return tuple(map(_whole, value))
    return value


def driver_of(status: ReportStatus | None) -> str | None:
    """The driver of the newest result: as the agent read it, else (a replay reads none) what its run was begun for."""
    if status is None:
        return None
    run, attempt, software = status.run.run if status.run else None, status.attempt, status.software
    history = () if isinstance(status, _Part) else status.history  # what it tells of a run stands in `software` then
    drivers = [software.driver if software else None, *(past.driver for past in history if past.run == run)]
    begun_for = attempt.basis.get("driver") if attempt is not None and attempt.run == run else None
    return next(filter(None, [drivers[0], begun_for, *drivers[1:]]), None)


def with_shared_field_sets(model: Model) -> Model:
    """The same frozen model; what pydantic remembers of it, and of the models in it - which fields were given - is held
    once for all that have the same: of a report it is nearly half of the memory."""
    assert model.model_config.get("frozen"), "a model that can be changed would change the others' sets"
    for value in vars(model).values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, BaseModel):
                with_shared_field_sets(item)
    object.__setattr__(model, "__pydantic_fields_set__", once(set, frozenset(model.model_fields_set)))
    return model
