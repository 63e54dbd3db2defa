"""What pydantic remembers of each model - which of its fields were given - held once for all models that have the same.

Of a report with five recipes these sets are nearly half of its memory, and there are thousands of reports.
"""

from typing import TypeVar

from pydantic import BaseModel

Model = TypeVar("Model", bound=BaseModel)
MOST_KEPT = 10_000
_SETS: dict[frozenset[str], set[str]] = {}


def with_shared_field_sets(model: Model) -> Model:
    """The same model, whose sets and those of the models in it are shared: it must be frozen (a copy gets its own)."""
    assert model.model_config.get("frozen"), "a model that can be changed would change the others' sets"
    for value in vars(model).values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, BaseModel):
                with_shared_field_sets(item)
    if len(_SETS) >= MOST_KEPT:
        _SETS.clear()
    fields = model.model_fields_set
    object.__setattr__(model, "__pydantic_fields_set__", _SETS.setdefault(frozenset(fields), fields))
    return model
