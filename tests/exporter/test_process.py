"""The exporter's process where no API server is: it waits, and ends when told to. Beside one it is tested in e2e."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp

from tests.cluster.test_client import write_kubeconfig


async def test_without_an_api_server_the_process_lives_and_serves_its_own_metrics_alone(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1")
    command = ["-m", "precision_operator.exporter", "--watch-namespaces=nowhere", "--port=0"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, f"--kubeconfig={kubeconfig}", stderr=subprocess.PIPE
    )
    try:
        line = b""
        while b"serving " not in line:
            line = await asyncio.wait_for(process.stderr.readline(), 20)
            assert line, "the exporter ended before it served"
        url = line.decode().partition("serving ")[2].strip().removesuffix("/metrics")
        async with aiohttp.ClientSession() as http:
            for path, expected in (("healthz", 200), ("readyz", 503), ("metrics", 200), ("metrics/shard/0", 503)):
                async with http.get(f"{url}/{path}") as response:
                    assert response.status == expected, path
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
