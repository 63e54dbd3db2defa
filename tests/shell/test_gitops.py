"""integrations/argo-cd and integrations/flux judge profiles by one table, on statuses that the operator wrote."""

import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from precision_api.facts.names import API_VERSION, PROFILE_KIND
from precision_lab.builds.binaries import binaries
from precision_operator.cluster import ApiError, paths
from tests.support.node_objects import node_object
from tests.support.operator_in_memory import JOBS, PROFILES, OperatorInMemory

FOLDER = Path(__file__).parents[2] / "integrations"
ARGO = FOLDER / "argo-cd" / "precisionprofiler.io" / "PrecisionProfile"
NODES = ("n1", "n2", "n3", "n4")
FLUX = {"Healthy": "Current", "Suspended": "Current", "Degraded": "Failed", "Progressing": "InProgress"}
ALL_FAIL: dict[str, Any] = {"retry": {"limit": 0}, "maxConcurrent": 4}
QUOTA = 'jobs.batch "x" is forbidden: exceeded quota: q, requested: count/jobs.batch=1, used: 0, limited: 0'
STEPS: dict[str, tuple[dict[str, Any], str]] = {
    "unseen": ({}, ""),
    "edited": ({}, "begin end n1 n2 n3 n4 edit"),
    "invalid": ({"workload": {"preset": "llama9"}}, "begin"),
    "running": ({}, "begin run"),
    "refused": ({}, "refuse begin"),
    "suspended": ({"suspend": True}, "begin"),
    "suspended-agents-run": ({}, "begin run suspend"),
    "stopped-by-admin": ({"target": {"nodeNames": ["n1"]}}, "stop begin"),
    "canary-failed": ({"rollout": ALL_FAIL | {"canary": 1}}, "begin fail n1"),
    "too-many-failures": ({"rollout": ALL_FAIL | {"maxFailures": 1, "maxConcurrent": 2}}, "begin fail n1 n2 end n3"),
    "succeeded": ({}, "begin end n1 n2 n3 n4"),
    "one-waits": ({}, "cordon n1 begin end n2 n3 n4"),
    "all-wait": ({}, "cordon n1 n2 n3 n4 begin"),
    "one-failed": ({"rollout": ALL_FAIL}, "begin fail n1 end n2 n3 n4"),
    "all-failed": ({"rollout": ALL_FAIL}, "begin fail n1 n2 n3 n4"),
    "no-nodes": ({"target": {"nodeNames": ["nowhere"]}}, "begin"),
}
"""What the operator goes through: the profile's spec, and what happens with it, one word each, and to which nodes."""


async def statuses() -> AsyncIterator[tuple[str, str]]:
    for name, (spec, words) in STEPS.items():
        loop = OperatorInMemory(*NODES)
        loop.apply("nightly", **({"rollout": {"maxConcurrent": 4}} | spec))
        step = ""
        for word in words.split():
            profile = loop.cluster.objects[f"{PROFILES}/nightly"]
            step = step if word in NODES else word
            if step == "run":
                loop.run_agents()
            elif step == "stop":
                loop.say(agents="Hold", message="Rack 12 is too hot")
            elif step == "refuse":
                loop.cluster.fail("POST", JOBS, ApiError(403, "Forbidden", QUOTA))
            elif word == "suspend":
                profile["spec"]["suspend"] = True
            elif word == "edit":
                profile["metadata"]["generation"] += 1
            elif word in NODES and step == "cordon":
                loop.cluster._store(f"{paths.NODES}/{word}", node_object(name=word, unschedulable=True))
            elif word in NODES and step == "end":
                loop.end_agent(word)
            elif word in NODES and step == "fail":
                loop.fail_agent(word)
            if step not in ("stop", "refuse", "cordon", "edit"):
                await loop.once()
        profile = loop.cluster.objects[f"{PROFILES}/nightly"]
        shown = ("observedGeneration", "phase", "conditions", "nodes")
        status = {key: value for key, value in profile["status"].items() if key in shown}
        meta = {key: profile["metadata"][key] for key in ("name", "namespace", "generation")}
        parts = {"metadata": meta, "spec": profile["spec"]} | ({"status": status} if status else {})
        head = {"apiVersion": API_VERSION, "kind": PROFILE_KIND}
        text = yaml.safe_dump({**head, **parts}, sort_keys=False, width=1000)
        yield name, re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "2026-11-20T09:00:00Z", text)


async def test_statuses_are_as_the_operator_writes_them() -> None:
    async for name, text in statuses():
        path = ARGO / "testdata" / f"{name}.yaml"
        if os.environ.get("UPDATE_GOLDEN"):
            path.write_text(text)
        assert path.read_text() == text, name


def test_argo_cd_and_flux_see_a_profile_by_one_table() -> None:
    tests = yaml.safe_load((ARGO / "health_test.yaml").read_text())["tests"]
    assert {test["inputPath"] for test in tests} == {f"testdata/{name}.yaml" for name in STEPS}
    program = binaries(["gitops-health"])["gitops-health"]
    files = [FOLDER / "flux" / "kustomization.yaml", ARGO / "health.lua", *(ARGO / test["inputPath"] for test in tests)]
    rows = subprocess.check_output([program, *files], text=True).splitlines()
    for test, row in zip(tests, rows, strict=True):
        flux, status, message = row.split("\t")
        assert {"status": status, "message": message} == test["healthStatus"], test["inputPath"]
        assert flux == FLUX[status] or (flux, test["inputPath"]) == ("Unknown", "testdata/unseen.yaml")
    patch = yaml.safe_load((FOLDER / "argo-cd" / "argocd-cm.yaml").read_text())
    script = patch["data"]["resource.customizations.health.precisionprofiler.io_PrecisionProfile"]
    assert script == (ARGO / "health.lua").read_text()
