"""What a user has saved: the documents of YAML and JSON files, the first profile and the nodes among them."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from precision_api.facts.names import API_VERSION, PROFILE_KIND
from precision_operator.core.observe.raw_object import section

Document = dict[str, Any]


def first_profile(path: str) -> Document:
    """The first PrecisionProfile of a file (`-`: stdin). ValueError, fit for the user, where there is none."""
    documents = objects(path)
    profile = next((item for item in documents if item.get("kind") == PROFILE_KIND), None)
    if profile is None:
        raise ValueError(f"{path}: there is no {PROFILE_KIND} in it, only {_kinds(documents)}")
    return profile


def saved_profile(path: str) -> Document:
    """The same, with all that an object of the cluster needs."""
    profile = first_profile(path)
    if profile.get("apiVersion") != API_VERSION:
        raise ValueError(f"{path}: apiVersion is {profile.get('apiVersion')!r}; this version reads {API_VERSION}")
    if not profile.get("spec"):
        raise ValueError(f"{path}: the {PROFILE_KIND} has no spec; add one, such as workload: {{preset: llama3-8b}}")
    if not section(profile, "metadata").get("name"):
        raise ValueError(f"{path}: the {PROFILE_KIND} has no metadata.name; add one")
    return profile


def saved_nodes(path: str) -> tuple[Document, ...]:
    """The nodes of a file, as `kubectl get nodes -o json` (or -o yaml) saves them: a list, an array or a single one."""
    documents = objects(path)
    strange = [
        item for item in documents if item.get("kind", "Node") != "Node" or not section(item, "metadata").get("name")
    ]
    if strange:
        raise ValueError(f"{path}: it holds {_kinds(strange)}; save nodes with kubectl get nodes -o json")
    names = [item["metadata"]["name"] for item in documents]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path}: node {twice[0]} is in it twice; keep one")
    return tuple(documents)


def read(path: str) -> str:
    """The text of a file (`-`: stdin). ValueError, fit for the user, where it can't be read."""
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"reading {path}: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"reading {path}: not UTF-8 text (byte {error.start}); is it the right file?") from error


def objects(path: str) -> list[Document]:
    """All objects of a file, those of lists one by one."""
    return [item for document in _documents(path, read(path)) for item in _items(path, document)]


def _documents(path: str, text: str) -> list[Any]:
    """JSON where it looks like JSON, since YAML takes a minute for the nodes of a large fleet."""
    if text.lstrip()[:1] in ("{", "["):
        import json

        try:
            return [json.loads(text)]
        except RecursionError as error:
            raise ValueError(f"{path}: nested too deeply") from error
        except ValueError:
            pass  # JSON in several documents, or YAML that begins like it
    import yaml  # only here: JSON is read without it

    try:
        return list(yaml.load_all(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"{path}: neither JSON nor YAML: {' '.join(str(error).split())[:300]}") from error


def _items(path: str, document: Any) -> Iterator[Document]:
    if isinstance(document, list):
        for item in document:
            yield from _items(path, item)
    elif isinstance(document, dict) and isinstance(document.get("items"), list):
        yield from _items(path, document["items"])
    elif isinstance(document, dict):
        yield document
    elif document is not None:
        raise ValueError(f"{path}: it holds {str(document)[:40]!r}, which is no Kubernetes object")


def _kinds(items: list[Document]) -> str:
    kinds = dict.fromkeys(str(item.get("kind", "an object without kind")) for item in items)
    return ", ".join(kinds) or "nothing"
