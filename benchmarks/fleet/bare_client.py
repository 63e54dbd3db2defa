"""A bare asyncio client that does the operator's writes and decides nothing: what the API server and the pods allow.

    python -m benchmarks.fleet.bare_client KUBECONFIG WORK

For each node: a look at its pods, the report, the Job, the log of the pod once it has ended, the full result, the
report's status, the Job's end; one watch shows all pods. The bodies are the operator's own, made beforehand. At most
`places` nodes at once. Prints one line of JSON: wall seconds, its own CPU seconds, peak MiB.
"""

import asyncio
import json
import resource
import ssl
import sys
import tempfile
import time
from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import yaml

Json = dict[str, Any]
MERGE = {"Content-Type": "application/merge-patch+json"}
JSON = {"Content-Type": "application/json"}
PATIENCE_SECONDS, NODE_SECONDS = 120.0, 2.0
REPORT_UID = "uid-of-the-report"
"""Stands in bodies for what the API server gives the report."""


class Client:
    """One sweep of one namespace."""

    def __init__(self, http: aiohttp.ClientSession, server: str, work: Json) -> None:
        self._http, self._server, self._work = http, server, work
        self._ended: dict[str, asyncio.Event] = {}
        self._pods: dict[str, str] = {}
        namespace = quote(work["namespace"])
        self._core = f"/api/v1/namespaces/{namespace}"
        self._jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
        self._reports = f"/apis/precisionprofiler.io/v1alpha1/namespaces/{namespace}/nodeprecisionreports"

    async def sweep(self) -> None:
        listed = await self._ask("GET", f"{self._core}/pods")
        watch = asyncio.create_task(self._watch(json.loads(listed)["metadata"]["resourceVersion"]))
        places = asyncio.Semaphore(self._work["places"])

        async def placed(node: Json) -> None:
            async with places:
                await self._measure(node)

        patience = PATIENCE_SECONDS + NODE_SECONDS * len(self._work["nodes"])
        try:
            async with asyncio.timeout(patience), asyncio.TaskGroup() as group:
                for node in self._work["nodes"]:
                    group.create_task(placed(node))
        except TimeoutError:
            waiting = sorted(self._ended)
            raise RuntimeError(
                f"after {patience:.0f} s these pods have not ended: {waiting[:5]}: ask for events"
            ) from None
        finally:
            watch.cancel()

    async def _measure(self, node: Json) -> None:
        bodies = self._work["bodies"][node["product"]]
        name = f"{self._work['turn']}-{node['name']}"
        swaps = {bodies["node"]: node["name"], bodies["uid"]: node["uid"], bodies["job"]: name, bodies["report"]: name}

        def body(of: str) -> bytes:
            text: str = bodies["texts"][of]
            for old, new in swaps.items():
                text = text.replace(old, new)
            return text.encode()

        chosen = quote(f"spec.nodeName={node['name']},status.phase!=Succeeded,status.phase!=Failed")
        await self._ask("GET", f"/api/v1/pods?fieldSelector={chosen}&limit=500")
        swaps[REPORT_UID] = json.loads(await self._ask("POST", self._reports, body("report")))["metadata"]["uid"]
        ended = self._ended[name] = asyncio.Event()
        await self._ask("POST", self._jobs, body("job_body"))
        await ended.wait()
        await self._ask("GET", f"{self._core}/pods/{self._pods.pop(name)}/log?tailLines=202&limitBytes=4194304")
        await self._ask("POST", f"{self._core}/configmaps", body("detail"))
        await self._ask("PATCH", f"{self._reports}/{name}/status", body("status"), MERGE)
        await self._ask("DELETE", f"{self._jobs}/{name}", b'{"propagationPolicy":"Background"}')
        del self._ended[name]

    async def _watch(self, version: str) -> None:
        while True:
            url = f"{self._server}{self._core}/pods?watch=1&resourceVersion={version}"
            async with self._http.get(url) as answer:
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        pod = json.loads(line)["object"]
                        version = pod["metadata"]["resourceVersion"]
                        self._see(pod)

    def _see(self, pod: Json) -> None:
        if pod["status"].get("phase") == "Succeeded":
            name = pod["metadata"]["labels"]["batch.kubernetes.io/job-name"]
            if name in self._ended and not self._ended[name].is_set():
                self._pods[name] = pod["metadata"]["name"]
                self._ended[name].set()

    async def _ask(self, method: str, path: str, body: bytes | None = None, headers: Json = JSON) -> bytes:
        async with self._http.request(method, self._server + path, data=body, headers=headers) as answer:
            text = await answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
            return text


def trusted(kubeconfig: Path) -> tuple[str, ssl.SSLContext]:
    """Server and TLS of the administrator's kubeconfig."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as pair:
        pair.write(b"\n".join(b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")))
        pair.flush()
        context.load_cert_chain(pair.name)
    return cluster["server"], context


async def main(kubeconfig: Path, work: Json) -> None:
    server, context = trusted(kubeconfig)
    connector = aiohttp.TCPConnector(ssl=context, limit=100)
    began, cpu = time.perf_counter(), time.process_time()
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(None)) as http:
        await Client(http, server, work).sweep()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures = {"seconds": time.perf_counter() - began, "cpuSeconds": time.process_time() - cpu, "peakMiB": peak}
    print(json.dumps(figures | {"nodes": len(work["nodes"])}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text())))
