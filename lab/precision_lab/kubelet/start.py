"""Starts the stand-in for the kubelets as one of the cluster's processes."""

from __future__ import annotations

import sys

from precision_lab.cluster.control_plane import ControlPlane

NAME = "kubelets"


def start_fake_kubelet(plane: ControlPlane, log_port: int, agent_seconds: float, program: str) -> None:
    """Starts it; it takes up all agent pods that are there, so nothing has to wait for it."""
    options = {
        "kubeconfig": plane.kubeconfig,
        "port": log_port,
        "folder": plane.run_dir / "pods",
        "agent-seconds": agent_seconds,
        "program": program,
    }
    flags = [f"--{name}={value}" for name, value in options.items()]
    plane.processes.start(NAME, [sys.executable, "-m", "precision_lab.kubelet.fake_kubelet", *flags], grace_seconds=2.0)
