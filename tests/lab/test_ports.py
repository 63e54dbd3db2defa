"""Free ports: nobody else is given one of them while its process lives."""

from __future__ import annotations

import subprocess
import sys

from precision_lab.processes import ports

ASK = "import sys; from precision_lab.processes.ports import reserve; print([reserve(int(it)) for it in sys.argv[1:]])"


def asked_by_another_process(*numbers: int) -> str:
    command = [sys.executable, "-c", ASK, *map(str, numbers)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_port_that_a_living_process_was_given_is_no_other_ones() -> None:
    mine = ports.free_ports(2)
    assert asked_by_another_process(*mine) == "[False, False]"
    assert not set(mine) & set(ports.free_ports(2))


def test_a_port_comes_back_with_the_end_of_its_process() -> None:
    command = [sys.executable, "-c", "from precision_lab.processes.ports import free_ports; print(*free_ports(1))"]
    port = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert asked_by_another_process(port) == "[True]"
