"""What a name on the command line may mean: kind/NAME, or a bare name where only one thing is called so."""

from collections.abc import Mapping, Sequence

from precision_operator.cli.terminal import did_you_mean, fail

KINDS: Mapping[str, str] = {
    "pp": "profile",
    "precisionprofile": "profile",
    "profile": "profile",
    "node": "node",
    "no": "node",
    "pool": "pool",
    "driver": "driver",
    "run": "run",
}
"""What may stand before a slash, as kubectl users write it -> what it means."""
SHORT = {"profile": "pp", "node": "node", "pool": "pool", "driver": "driver", "run": "run"}
"""What we write before the slash."""


def bare_node(text: str) -> str:
    """The name of a node that is written as NAME or node/NAME."""
    prefix, slash, name = text.partition("/")
    return name if slash and prefix.lower() in ("node", "nodes", "no") else text


def resolve_name(text: str, of_kind: Mapping[str, Sequence[str]], where: str = "", see: str = "") -> tuple[str, str]:
    """(kind, name) of what `text` names; ends the command where it names nothing, or several things.

    `of_kind` has the names of each kind that the command takes; `see` says where to look for a name that is not there.
    """
    prefix, slash, name = text.partition("/")
    kind = KINDS.get(prefix.lower(), "")
    if slash and kind in of_kind:
        if name not in of_kind[kind]:
            fail(f"there is no {kind} {name}{where}{did_you_mean(name, of_kind[kind], see)}")
        return kind, name
    kinds = [kind for kind, names in of_kind.items() if text in names]
    if not kinds:
        every = [name for names in of_kind.values() for name in names]
        fail(f"{text} is no {' or '.join(of_kind)}{where}{did_you_mean(text, every, see)}")
    if len(kinds) > 1:
        ways = " or ".join(f"{SHORT[kind]}/{text}" for kind in kinds)
        fail(f"{text} is a {' and a '.join(kinds)}: write {ways}")
    return kinds[0], text
