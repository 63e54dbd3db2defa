"""Definitions that come late, or go and come back, and rights that are missing for a while: seen within seconds.

Operator and exporter run throughout, with the rights of the chart, as a user without a passwd entry and without HOME.
"""

import sys
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from precision_lab.lab import Lab, LabSettings, start_lab
from precision_lab.processes.ports import free_ports
from precision_lab.release.install import NAMESPACE, Program, program_of, render
from tests.support.eventually import eventually
from tests.support.site import profile_manifest

pytestmark = pytest.mark.cluster

RED, BLUE = "red", "blue"
SOON_SECONDS = 30
BINDING = f"rolebinding/precision-system:precision-profiler-operator --namespace={BLUE}".split()
NAMELESS = (
    "import os, pwd, runpy, sys\n"
    "def missing(uid): raise KeyError(f'getpwuid(): uid not found: {uid}')\n"
    "pwd.getpwuid = missing\n"
    "for name in ('HOME', 'USER', 'LOGNAME', 'LNAME', 'USERNAME'): os.environ.pop(name, None)\n"
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)\n"
)
"""Runs a module as Python does for a user that the machine doesn't know."""


@dataclass(frozen=True)
class Late:
    """The cluster and its two programs, which were started before their definitions were there."""

    lab: Lab
    programs: Mapping[str, Program]
    definitions: list[dict[str, Any]]

    def define(self) -> None:
        for definition in self.definitions:
            self.lab.apply(definition)
        self.lab.wait_until_established(*self.names())

    def undefine(self) -> None:
        self.lab.kubectl("delete", "crd", *self.names())

    def names(self) -> list[str]:
        return [definition["metadata"]["name"] for definition in self.definitions]

    def is_seen(self, namespace: str, name: str) -> bool:
        """Whether the operator has written the profile's status, and the exporter shows it."""
        status = self.lab.get(f"pp/{name}", "-n", namespace).get("status", {})
        return bool(status.get("observedGeneration")) and self.is_shown(namespace, name)

    def is_shown(self, namespace: str, name: str) -> bool:
        with urllib.request.urlopen(f"{self.programs['exporter'].url}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        return f'profile="{name}",profile_namespace="{namespace}"' in text

    def add(self, namespace: str, name: str) -> None:
        self.lab.apply(profile_manifest(namespace, name, suspend=True))

    def log(self, name: str = "operator") -> list[str]:
        return self.lab.processes.log(name).splitlines()


@pytest.fixture(scope="module")
def late() -> Iterator[Late]:
    with start_lab(settings=LabSettings(simulate=False)) as lab:
        for namespace in (NAMESPACE, RED, BLUE):
            lab.create_namespace(namespace)
        objects = render(lab, NAMESPACE, [f"watchNamespaces={{{RED},{BLUE}}}"])
        definitions = [item for item in objects if item["kind"] == "CustomResourceDefinition"]
        deployments = [item for item in objects if item["kind"] == "Deployment"]
        for item in objects:
            if item not in definitions and item not in deployments:
                lab.apply(item)
        programs = [program_of(lab, *each) for each in zip(deployments, free_ports(2), strict=True)]
        for program in programs:
            start_nameless(program)
        yield Late(lab, {program.name: program for program in programs}, definitions)
        for program in programs:
            lab.processes.stop(program.name, 9)


def start_nameless(program: Program) -> None:
    """Start it as a user without a name or a home; it does not wait until it is ready, which it can't be yet."""
    python, dash_m, module, *arguments = program.argv
    assert (python, dash_m) == (sys.executable, "-m")
    argv = (python, "-c", NAMELESS, module, *arguments)
    program.lab.processes.start(
        program.name, argv, env={"KUBECONFIG": str(program.kubeconfig), "HOME": ""}, grace_seconds=10.0
    )


def test_without_definitions_programs_live_say_so_once_and_are_not_ready(late: Late) -> None:
    for name in ("operator", "exporter"):
        eventually(lambda name=name: sum("404" in line for line in late.log(name)) >= 6)
    assert [program.is_ready() for program in late.programs.values()] == [False, False]
    for name in ("operator", "exporter"):
        said = [line for line in late.log(name) if "not watched" in line]
        assert len(said) == 6, said  # profiles, reports and plans in two namespaces


def test_definitions_that_come_late_are_seen(late: Late) -> None:
    late.define()
    late.add(RED, "late")
    eventually(lambda: all(program.is_ready() for program in late.programs.values()), SOON_SECONDS)
    eventually(lambda: late.is_seen(RED, "late"), SOON_SECONDS)


def test_definitions_that_go_and_come_back_are_seen(late: Late) -> None:
    late.add(BLUE, "before")
    eventually(lambda: late.is_seen(BLUE, "before"), SOON_SECONDS)
    late.undefine()
    eventually(lambda: not late.is_shown(BLUE, "before"), SOON_SECONDS)
    late.define()
    late.add(BLUE, "after")
    eventually(lambda: late.is_seen(BLUE, "after"), SOON_SECONDS)


def test_rights_that_are_taken_and_given_back_heal_and_cost_no_other_namespace(late: Late) -> None:
    there = late.lab.get(*BINDING)
    binding = {key: there[key] for key in ("apiVersion", "kind", "roleRef", "subjects")}
    binding["metadata"] = {key: there["metadata"][key] for key in ("name", "namespace")}
    late.lab.kubectl("delete", *BINDING)
    late.undefine()  # ends the watches: the API server asks for rights when a watch begins
    late.define()
    late.add(RED, "alone")
    eventually(lambda: late.is_shown(RED, "alone"), SOON_SECONDS)
    eventually(lambda: any("profiles in blue: not watched" in line and "403" in line for line in late.log()))
    late.lab.apply(binding)
    late.add(BLUE, "healed")
    eventually(lambda: late.is_seen(BLUE, "healed"), SOON_SECONDS)
