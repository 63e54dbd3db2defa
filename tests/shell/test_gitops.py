"""integrations/argo-cd and integrations/flux judge profiles by one table, on statuses that the operator wrote."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from precision_api.facts.names import API_VERSION, PROFILE_KIND
from precision_lab.builds.binaries import binaries
from precision_operator.cluster import ApiError, paths
from tests.support.golden import beside
from tests.support.node_objects import node_object
from tests.support.operator_in_memory import JOBS, PROFILES, OperatorInMemory

TABLES = beside(__file__)

FOLDER = Path(__file__).parents[2] / "integrations"
ARGO = FOLDER / "argo-cd" / "precisionprofiler.io" / "PrecisionProfile"
NODES = ("n1", "n2", "n3", "n4")
QUOTA = 'jobs.batch "x" is forbidden: exceeded quota: q, requested: count/jobs.batch=1, used: 0, limited: 0'
STEPS = TABLES["steps"]
"""By file: the profile's spec, and what happens, one word each, and to which nodes."""


@pytest.mark.parametrize("name", STEPS)
async def test_a_status_is_as_the_operator_writes_it(name: str) -> None:
    loop, (spec, words), step = OperatorInMemory(*NODES), STEPS[name], ""
    loop.apply("nightly", **({"rollout": {"maxConcurrent": 4}} | spec))
    for word in words.split():
        profile, step = loop.cluster.objects[f"{PROFILES}/nightly"], step if word in NODES else word
        match step, word in NODES:
            case "run", _:
                loop.run_agents()
            case "stop", _:
                loop.say(agents="Hold", message="Rack 12 is too hot")
            case "refuse", _:
                loop.cluster.fail("POST", JOBS, ApiError(403, "Forbidden", QUOTA))
            case "suspend", _:
                profile["spec"]["suspend"] = True
            case "edit", _:
                profile["metadata"]["generation"] += 1
            case "cordon", True:
                loop.cluster._store(f"{paths.NODES}/{word}", node_object(name=word, unschedulable=True))
            case "end", True:
                loop.end_agent(word)
            case "fail", True:
                loop.fail_agent(word)
        if step not in ("stop", "refuse", "cordon", "edit"):
            await loop.once()
    profile = loop.cluster.objects[f"{PROFILES}/nightly"]
    shown = {"apiVersion": API_VERSION, "kind": PROFILE_KIND}
    shown |= {"metadata": {key: profile["metadata"][key] for key in ("name", "namespace", "generation")}}
    shown |= {"spec": profile["spec"]}
    fields = ("observedGeneration", "phase", "conditions", "nodes")
    shown |= {"status": {key: profile["status"][key] for key in fields}} if profile["status"] else {}
    text = yaml.safe_dump(shown, sort_keys=False, width=1000)
    text, path = re.sub(r"\d{4}-\d\d-\d\dT[\d:]+Z", "2026-11-20T09:00:00Z", text), ARGO / f"testdata/{name}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert path.read_text() == text


def test_argo_cd_and_flux_see_a_profile_by_one_table() -> None:
    tests = yaml.safe_load((ARGO / "health_test.yaml").read_text())["tests"]
    assert {test["inputPath"] for test in tests} == {f"testdata/{name}.yaml" for name in STEPS}
    files = [FOLDER / "flux" / "kustomization.yaml", ARGO / "health.lua", *(ARGO / test["inputPath"] for test in tests)]
    rows = subprocess.check_output([binaries(["gitops-health"])["gitops-health"], *files], text=True).splitlines()
    alike = {"Healthy": "Current", "Suspended": "Current", "Degraded": "Failed", "Progressing": "InProgress"}
    for test, row in zip(tests, rows, strict=True):
        flux, status, message = row.split("\t")
        assert {"status": status, "message": message} == test["healthStatus"], test["inputPath"]
        assert flux == ("Unknown" if test["inputPath"] == "testdata/unseen.yaml" else alike[status])
    patch = yaml.safe_load((FOLDER / "argo-cd" / "argocd-cm.yaml").read_text())["data"]
    assert patch == {
        "resource.customizations.health.precisionprofiler.io_PrecisionProfile": (ARGO / "health.lua").read_text()
    }
