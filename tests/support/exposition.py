"""A store of the exporter with objects in it, and the samples of what it shows."""

from typing import Any

from prometheus_client.core import Sample
from prometheus_client.parser import text_string_to_metric_families

from precision_operator.exporter.families.family import Level
from precision_operator.exporter.families.selection import Selection
from precision_operator.exporter.store import Store


def store_of(*objects: dict[str, Any], level: Selection | Level = "detail") -> Store:
    store = Store(level)
    for raw in objects:
        store.see(f"{raw['kind'].lower()}s", raw)
    return store


def samples_in(text: bytes) -> list[Sample]:
    return [sample for family in text_string_to_metric_families(text.decode()) for sample in family.samples]
