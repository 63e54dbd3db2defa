"""Templates of `-o jsonpath=`: what they print, what they refuse, and that kubectl prints the same."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from precision_lab.builds.binaries import binaries
from precision_operator.cli.jsonpath import JsonPathProblem, OutOfBounds, read_template

ROWS = [
    {"node": "a", "state": "Measured", "speedup": 1.96, "slow": False, "flags": ["slow"], "tokens": 1234567},
    {"node": "b", "state": "Failed", "speedup": None, "slow": True, "flags": [], "tokens": 3},
    {"node": "c", "state": "Failed", "speedup": 1.5, "labels": {"nvidia.com/gpu.product": "GB200"}},
]
PRINTED = {
    "{.items[*].node}": "a b c",
    "{[*].node}": "a b c",
    "{$.items[*].node}": "a b c",
    "{.items[0].node} and {.items[-1].node}": "a and c",
    "{.items[0:2].node}": "a b",
    "{.items[1:].node}": "b c",
    "{.items[::2].node}": "a c",
    "{.items[0,2].node}": "a c",
    "{.items[0]['node','state']}": "a Measured",
    "{.items[1].speedup}": "null",
    "{.items[1].slow}": "true",
    "{.items[0].tokens}": "1234567",
    "{.items[0].flags}": '["slow"]',
    "{.items[2].labels.nvidia\\.com/gpu\\.product}": "GB200",
    "{.items[2].labels['nvidia.com/gpu.product']}": "GB200",
    '{.items[?(@.state=="Failed")].node}': "b c",
    "{.items[?(@.state!='Failed')].node}": "a",
    "{.items[?(@.speedup>1.6)].node}": "a",
    "{.items[?(@.speedup<=1.96)].node}": "a c",
    "{.items[?(@.slow==true)].node}": "b",
    "{.items[?(@.labels)].node}": "c",
    '{range .items[*]}{.node}{"\\t"}{.state}{"\\n"}{end}': "a\tMeasured\nb\tFailed\nc\tFailed\n",
    "{range .items[*]}[{range .flags[*]}{@}{end}]{end}": "[slow][][]",
    "{.items[*].nosuch}": "",
    "{..product}": "",
    "{.items..node}": "a b c",
    "nodes: {.items[*].node}!": "nodes: a b c!",
}
REFUSED = {
    "": "the template is empty",
    ".items[*].node": "write the path in braces and quotes: -o jsonpath='{.items[*].node}'",
    "{items[*].node}": "names begin with a dot",
    "{.items[*}": "can't be read",
    "{.items[x]}": "[x] is no index",
    "{.a": "is not closed",
    "{range .items[*]}{.node}": "{range} without {end}",
    "{.node}{end}": "{end} without {range}",
    '{.items[?(@.a=="x" && @.b=="y")]}': "a filter compares once",
    "{.items[?(@.a=~'x')]}": "a filter compares once",
    "{.items[?(@.a==x)]}": 'write "x"',
    "{.items[::0]}": "the step must be 1 or more",
    "{}": "there is an empty {}",
}


@pytest.mark.parametrize(("template", "printed"), PRINTED.items())
def test_what_kubectl_users_type_is_filled_in(template: str, printed: str) -> None:
    assert read_template(template).of(ROWS) == printed


@pytest.mark.parametrize(("template", "words"), REFUSED.items())
def test_what_can_not_be_read_is_refused_with_what_to_write(template: str, words: str) -> None:
    with pytest.raises(JsonPathProblem) as refused:
        read_template(template).of(ROWS)
    assert words in str(refused.value)


def test_a_list_that_is_too_short_is_told_as_kubectl_tells_it() -> None:
    with pytest.raises(OutOfBounds, match="array index out of bounds: index 7, length 3"):
        read_template("{.items[7]}").of(ROWS)


def test_kinds_that_can_not_be_compared_are_refused() -> None:
    with pytest.raises(JsonPathProblem, match="of different kinds"):
        read_template("{.items[?(@.node>3)]}").of(ROWS)


def test_what_is_printed_of_others_moves_no_cursor() -> None:
    assert read_template("{.a}").of({"a": "x\x1b[2Jy\x07"}) == "xy"


CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "one",
    "clusters": [{"name": f"c{i}", "cluster": {"server": f"https://{i}.example"}} for i in range(4)],
    "contexts": [{"name": name, "context": {"cluster": f"c{i}", "user": "u"}} for i, name in enumerate(("one", "two"))],
    "users": [{"name": "u", "user": {}}],
}
AS_KUBECTL = (
    "{.clusters[*].name}",
    "{.clusters[0].name}",
    "{.clusters[-1].name}",
    "{.clusters[-2:].name}",
    "{.clusters[1:3].name}",
    "{.clusters[::2].name}",
    "{.clusters[0,2].name}",
    "{.clusters[*]['name']}",
    "{.current-context}",
    "{['current-context']}",
    "{$.contexts[*].context.cluster}",
    "{@.contexts[*].context.user}",
    '{.clusters[?(@.name=="c2")].cluster.server}',
    "{.clusters[?(@.name!='c2')].name}",
    '{.clusters[?(@.name>"c1")].name}',
    '{.clusters[?(@.name<="c1")].name}',
    '{range .clusters[*]}{.name}{"\\t"}{.cluster.server}{"\\n"}{end}',
    'all: {range .contexts[*]}{@.name}{", "}{end}end',
    "{.clusters[*].nosuch}",
    "{.nosuch}",
    "{.clusters[0].cluster}",
    "{.contexts[1].name} {.contexts[0].name}",
    "{..server}",
)


@pytest.mark.cluster
def test_kubectl_prints_the_same(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(CONFIG))
    view = [str(binaries(["kubectl"])["kubectl"]), "config", "view", f"--kubeconfig={path}", "-o"]

    def kubectl(form: str) -> str:
        return subprocess.run([*view, form], capture_output=True, text=True, check=True).stdout

    document = json.loads(kubectl("json"))
    ours = {template: read_template(template).of(document) for template in AS_KUBECTL}
    assert ours == {template: kubectl(f"jsonpath={template}") for template in AS_KUBECTL}
