"""Names of the lab's own annotations: how a test or a demo tells the stand-in what a node shall do."""

from __future__ import annotations

PREFIX = "lab.precisionprofiler.io"
SCALE = f"{PREFIX}/scale"
"""The node's speed against the published one, as a decimal: 0.8 is 20 % slow."""
FAULT = f"{PREFIX}/fault"
"""What goes wrong with every agent on this node: a name of the table of faults, with `:argument` where it takes one."""
FAULT_RUNS = f"{PREFIX}/fault-runs"
"""How many agents of this node have the fault, the first ones; without it all of them."""
AGENT_SECONDS = f"{PREFIX}/agent-seconds"
"""How long an agent takes on this node, instead of the cluster's setting."""
NOT_READY = f"{PREFIX}/not-ready"
"""On a node: nothing sets it Ready again."""
BUSY_POD = f"{PREFIX}/busy"
"""Annotation of a node that shall be busy, and label of the pod that holds its GPUs."""
KWOK_NODE = "kwok.x-k8s.io/node"
"""Annotation of simulated nodes: kwok and the stand-in leave all others alone."""
