"""Starts the stand-in for the kubelets as one of the cluster's processes."""

from __future__ import annotations

import sys

from precision_lab.cluster.control_plane import ControlPlane

NAME = "kubelets"


def start_fake_kubelet(plane: ControlPlane, log_port: int, agent_seconds: float) -> None:
    """Starts it; it takes up all agent pods that are there, so nothing has to wait for it."""
    command = [sys.executable, "-m", "precision_lab.kubelet.fake_kubelet", str(plane.kubeconfig), str(log_port)]
    command += [str(plane.run_dir / "pods"), str(agent_seconds)]
    plane.processes.start(NAME, command, grace_seconds=2.0)
