"""What happens to one agent on a real node that asks for more than it may have: memory, disk or time."""

import re

import pytest

from precision_agent.run.progress import WORDS
from precision_api.facts.names import ANNOTATION_DEADLINE
from precision_operator.core.attempts.manifest import POD_GRACE_SECONDS
from tests.support.installed import AGENT_RESOURCES, ONLY_GPU_NODE, TEAM, Installed, Object

pytestmark = pytest.mark.node
NO_RETRY = {"retry": {"limit": 0}}
STORAGE = "64Mi"
SAYS_THAT_IT_MEASURES = "import signal, sys, time\nprint('measuring', flush=True)\n"
EATS_MEMORY = "kept = [bytearray(1 << 24) for _ in range(1 << 10)]"
FILLS_TMP = f"""{SAYS_THAT_IT_MEASURES}
with open("/tmp/cache", "wb") as file:
    for _ in range(1 << 8):
        file.write(bytes(1 << 20))
time.sleep(600)
"""
FILLS_LOG = f"""{SAYS_THAT_IT_MEASURES}
for _ in range(1 << 8):
    sys.stdout.write(("x" * 1023 + "\\n") * (1 << 12))
    time.sleep(0.1)
time.sleep(600)
"""
"""At some 40 MB/s: the kubelet looks every ten seconds, and keeps no more than 50 MiB of what it has rotated."""
HANGS = """
import math, signal, sys, time
from precision_agent.run.progress import Lines
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Lines((), sys.stderr)("measure", 0.0, math.nan)
time.sleep(600)
"""
DEADLINE = 90
"""Seconds in place of half an hour: two minutes and a half after its start it has been silent long enough."""


def test_an_agent_that_is_out_of_memory_says_what_to_raise(installed: Installed) -> None:
    with installed.real.agents_run(EATS_MEMORY):
        profile = installed.apply("out-of-memory", target=ONLY_GPU_NODE, rollout=NO_RETRY, agent=asking(memory="64Mi"))
        attempt = profile.ends("AgentOutOfMemory")
    assert (attempt["outcome"], "spec.agent.resources.memory" in attempt["message"]) == ("failed", True)


@pytest.mark.long
@pytest.mark.parametrize(("name", "program"), [("full-tmp", FILLS_TMP), ("full-log", FILLS_LOG)])
def test_an_agent_that_fills_the_nodes_disk_is_ended_and_says_what_to_raise(
    installed: Installed, name: str, program: str
) -> None:
    """256 MiB in /tmp, or 1 GiB of log, where 64 MiB are allowed."""
    with installed.real.agents_run(program):
        profile = installed.apply(name, target=ONLY_GPU_NODE, rollout=NO_RETRY, agent=asking(ephemeralStorage=STORAGE))
        attempt = profile.ends("AgentOutOfStorage")
    assert attempt["outcome"] == "failed"
    assert STORAGE in attempt["message"], "the kubelet's own words are there"
    assert "spec.agent.resources.ephemeralStorage" in attempt["message"]


@pytest.mark.long
def test_an_agent_that_hangs_is_ended_a_minute_after_its_deadline_and_its_log_is_kept(installed: Installed) -> None:
    """Its deadline is moved up; an agent that works would end itself with what it has."""
    with installed.real.agents_run(HANGS):
        profile = installed.apply("hangs", target=ONLY_GPU_NODE, rollout=NO_RETRY, agent=asking())
        pod = profile.running_agent()
        (job,) = profile.jobs()
        moved_up = (f"{ANNOTATION_DEADLINE}={DEADLINE}", "--overwrite", "-n", TEAM)
        installed.lab.kubectl("annotate", "job", job["metadata"]["name"], *moved_up)
        attempt = profile.ends("AgentHung", 300)
    assert (attempt["outcome"], attempt["log"]) == ("failed", f"    0 s  {WORDS['measure']}")
    told = re.search(r"was stopped after (\d+) s, (\d+) s after its last progress \((.+?)\)\.", attempt["message"])
    assert told is not None, attempt
    assert int(told[1]) >= DEADLINE + POD_GRACE_SECONDS
    assert (told[2], told[3]) == (told[1], WORDS["measure"]), "it wrote its only line in its first second"
    installed.lab.kubectl("wait", "--for=delete", f"pod/{pod['metadata']['name']}", "-n", TEAM, "--timeout=60s")


def asking(**resources: str) -> Object:
    """The agent's part of a profile's spec."""
    return {"resources": {**AGENT_RESOURCES, **resources}}
