"""Straight to the API server: where it is and who we are, by a kubeconfig or the pod's service account."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
import yaml
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from precision_operator.cluster.client import Answer, Cluster
from precision_operator.cluster.errors import REDIRECTS, ConnectionProblem, redirected

if TYPE_CHECKING:
    import kopf

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CONNECT_SECONDS = 10.0
_LOOPBACK = ("localhost", "127.", "::1")


@dataclass(frozen=True)
class Connection:
    """An API server, the credentials for it, and the namespace that is meant when none is named."""

    configuration: Any
    """kubernetes.aio's Configuration; `Any` because the library's types are not followed."""
    namespace: str

    @property
    def through_proxy(self) -> bool:
        """Whether HTTPS_PROXY may be used. Go's clients never send loopback through a proxy; aiohttp would."""
        return not (urlsplit(self.configuration.host).hostname or "").startswith(_LOOPBACK)


class DirectCluster(Cluster):
    """Requests by kubernetes.aio, as kubeconfig or service account say."""

    def __init__(self, connection: Connection, deadline_seconds: float = 30.0) -> None:
        super().__init__(connection.namespace, connection.configuration.host, deadline_seconds)
        self._configuration = connection.configuration
        self._configuration.connection_pool_maxsize = 0  # no bound: each watch holds one
        self._configuration.client_session_kwargs = {
            "trust_env": connection.through_proxy,
            "middlewares": (refuse_redirects,),
            "request_class": partial(_Request, cluster=self),
        }
        self._connect_seconds = min(deadline_seconds, _CONNECT_SECONDS)
        self._rest = RESTClientObject(connection.configuration)

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: str | None, deadline_seconds: float = 30.0) -> "AsyncIterator[DirectCluster]":
        """A cluster as kubectl would find it; closed at the end. Raises ConnectionProblem when there is none."""
        cluster = cls(await connection(kubeconfig), deadline_seconds)
        try:
            yield cluster
        finally:
            await cluster._rest.close()

    @asynccontextmanager
    async def _exchange(
        self, method: str, target: str, headers: dict[str, str], body: object, silent_seconds: float | None
    ) -> AsyncIterator[Answer]:
        total = None if silent_seconds else self._deadline_seconds
        deadline = aiohttp.ClientTimeout(total, sock_connect=self._connect_seconds, sock_read=silent_seconds)
        try:
            if token := await authorization(self._configuration):
                headers["Authorization"] = token
            url = self.server + target
            answer = await self._rest.request(method, url, headers=headers, body=body, _request_timeout=deadline)
            async with answer.response as response:
                yield Answer(response.status, response.reason or "", response.headers.get, response.content.iter_any())
        except TimeoutError:  # some are ClientErrors too
            raise
        except (aiohttp.ClientError, ConfigException) as error:
            raise ConnectionError(str(error) or type(error).__name__) from error


class _Request(aiohttp.ClientRequest):
    """A request whose right to write is looked at when it has its connection: opening one may take long."""

    def __init__(self, *args: Any, cluster: Cluster, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cluster = cluster

    async def write_bytes(self, writer: Any, conn: Any, content_length: int | None = None) -> None:
        try:
            if self.method != "GET":
                self._cluster.before_write()
        except Exception as refusal:
            conn.protocol.set_exception(refusal)
            conn.close()
            return
        await super().write_bytes(writer, conn, content_length)


async def connection(kubeconfig: str | None = None) -> Connection:
    """The connection that kubectl would use.

    An explicit `kubeconfig` comes first, then $KUBECONFIG, then the pod's service account, then ~/.kube/config.
    Raises ConnectionProblem when there is none, or it can't be read.
    """
    path = kubeconfig or os.environ.get("KUBECONFIG")
    in_a_pod = os.environ.get("KUBERNETES_SERVICE_HOST") and (SERVICE_ACCOUNT / "token").is_file()
    if not path and in_a_pod:
        return _from_service_account()
    return await _from_file(path or str(Path.home() / ".kube" / "config"))


async def kopf_connection(kubeconfig: str | None = None) -> "kopf.ConnectionInfo":
    """The same connection for kopf's watches: call it from a handler of `kopf.on.login` (kopf asks again after 401)."""
    import kopf

    details = await connection(kubeconfig)
    configuration = details.configuration
    scheme, _, token = (await authorization(configuration)).partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        default_namespace=details.namespace,
        proxy_url=configuration.proxy,
        trust_env=details.through_proxy,
    )


async def authorization(configuration: Any) -> str:
    """The value of the Authorization header ("Bearer ..."), refreshed if it was due; empty with client certificates."""
    return str(await configuration.get_api_key_with_prefix("BearerToken", alias="authorization") or "").strip()


async def refuse_redirects(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """The answer. Raises ApiError for a redirect: a pod behind the API server's proxy would choose what we ask for."""
    answer = await send(request)
    if answer.status not in REDIRECTS:
        return answer
    answer.close()
    raise redirected(f"{request.method} {request.url.path}", answer.status, answer.headers.get("Location"))


def _from_service_account() -> Connection:
    configuration = Configuration()
    try:
        load_incluster_config(client_configuration=configuration)
    except (ConfigException, OSError) as error:
        problem = f"reading the pod's service account: {error}; is automountServiceAccountToken off?"
        raise ConnectionProblem(problem) from error
    path = SERVICE_ACCOUNT / "namespace"
    return Connection(configuration, path.read_text().strip() if path.is_file() else "default")


def _any_file(path: str) -> bool:
    """$KUBECONFIG may be a list of files, of which some are missing; the loader merges those that are there."""
    return any(Path(part).expanduser().is_file() for part in path.split(os.pathsep))


async def _from_file(path: str) -> Connection:
    if not _any_file(path):
        raise ConnectionProblem(f"there is no kubeconfig at {path}: name one with --kubeconfig or $KUBECONFIG")
    configuration = Configuration()
    try:
        loader = await load_kube_config(config_file=path, client_configuration=configuration, persist_config=False)
    except (ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
        raise ConnectionProblem(f"reading kubeconfig {path}: {error}") from error
    _keep_fresh(configuration, loader)
    return Connection(configuration, str(loader.current_context["context"].get("namespace") or "default"))


def _keep_fresh(configuration: Any, loader: Any) -> None:
    """Let an exec plugin's token be renewed when it has expired: a cloud's lasts 15 minutes, an operator longer."""
    if not hasattr(loader, "exec_plugin_expiry"):
        return

    async def renew(configuration: Any) -> None:
        await loader.load_from_exec_plugin()
        configuration.api_key["BearerToken"] = loader.token

    configuration.refresh_api_key_hook = renew
