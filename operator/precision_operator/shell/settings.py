"""The operator's settings on its command line: read by the operator itself, and by who looks at its Deployment."""

import argparse
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from precision_api.facts.names import DEFAULT_PRIORITY_CLASS, LABEL_APP
from precision_operator.cluster import paths
from precision_operator.core.observe.clock import format_time
from precision_operator.core.observe.configuration import AgentDefaults, FleetLimits, namespaces, parts
from precision_operator.core.observe.node_gate import NodeGate
from precision_operator.core.observe.observed import Raw, Settings
from precision_operator.core.observe.stop import stop_of
from precision_operator.core.observe.views import spec_problem

Told = TypeVar("Told", bound=BaseModel)

OURS = f"{LABEL_APP}=precision-profiler"
"""Label of what a chart's release consists of. Tenants may use it in their namespaces, but make no bindings."""
BINDINGS = paths.collection("rbac.authorization.k8s.io/v1", "clusterrolebindings")


@dataclass(frozen=True)
class Configured:
    """How an operator is configured: its settings, the namespaces whose profiles it serves, and who may stop it."""

    settings: Settings
    namespaces: tuple[str, ...]
    stop_config_map: str


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Add the options that `configured_by` reads."""
    add = parser.add_argument
    add("--watch-namespaces", type=namespaces, required=True, metavar="A,B", help="Namespaces of the profiles.")
    add("--agent-image", default="", help="Agent image of profiles that name none.")
    add("--allowed-images", type=parts, default=(), metavar="P,P", help="Prefixes of the agent images to allow.")
    add("--priority-class", default=DEFAULT_PRIORITY_CLASS, help="PriorityClass of the agents: %(default)s.")
    add("--agent-service-account", default="precision-profiler-agent", help="Of the agents: %(default)s.")
    defaults = "What agents get where their profile says nothing, and labels, scheduler and user of their pods."
    add("--agent-defaults", type=partial(_document, AgentDefaults, "agent-defaults"), metavar="JSON", help=defaults)
    limits = "Most agents and watts of all namespaces together, by pool and by topology key too. Default: no limit."
    add("--fleet-limits", type=partial(_document, FleetLimits, "fleet-limits"), metavar="JSON", help=limits)
    add("--profiles-per-namespace", type=int, metavar="N", help="Most profiles served of a namespace. Default: all.")
    across = "Namespaces whose capacity plans may read reports of other watched namespaces. Default: none."
    add("--plans-across-namespaces", dest="plans_across", type=parts, metavar="A,B", help=across)
    add("--stop", default="Run", help="Run, Hold (no agent starts) or End (running agents are ended too): %(default)s.")
    add("--stop-message", default="", metavar="TEXT", help="Why: shown in the status of every profile.")
    add("--stop-config-map", default="", help="In our namespace: its `agents` stops all. Default: none is read.")
    taints = "Keys of taints of nodes that are not in service yet; KEY/ means all keys below it."
    add("--startup-taints", type=parts, metavar="K,K", help=taints)
    claims = "Ask for GPUs by resource claim (DRA) on nodes that offer them so: %(default)s."
    add("--resource-claims", action=argparse.BooleanOptionalAction, default=True, help=claims)
    add("--device-class", default="gpu.nvidia.com", help="DeviceClass of the agents' claims: %(default)s.")
    add("--nvlink-domain-labels", dest="domain_labels", type=parts, metavar="L,L", help="More of NVLink domains.")
    add("--show-other-namespaces", action="store_true", help="Name pods and profiles of other namespaces in statuses.")
    gate = "Profiles whose verdicts are written to Nodes, and the policy that guards that. Default: none."
    add("--node-condition", dest="node_gate", type=partial(_document, NodeGate, "node-condition"), help=gate)
    add("--accept-simulated", action="store_true", help="For laboratories: verdicts may rest on simulated figures.")
    add("--disruption-backoff-seconds", dest="disruption_backoff", type=_seconds, help="How long a node rests.")
    outlives = "How long an agent's pod may outlive its end before its kubelet is taken for gone."
    add("--unresponsive-grace-seconds", dest="unresponsive_grace", type=_seconds, metavar="S", help=outlives)


def configured_by(options: argparse.Namespace) -> Configured:
    """What a command line with those options says."""
    values = {field.name: value for field in fields(Settings) if (value := vars(options).get(field.name)) is not None}
    values["stop"] = stop_of(options.stop, options.stop_message, "the chart's value agent.stop")
    settings = Settings(**values, started=format_time(datetime.now(UTC)))
    return Configured(settings, options.watch_namespaces, options.stop_config_map)


def operator_of(binding: Raw) -> tuple[str, str] | None:
    """Namespace and name of the operator that a release's binding names; None where it names none."""
    subject: Raw = next(iter(binding.get("subjects") or ()), {})
    name = str(subject.get("name"))
    return (str(subject.get("namespace")), name) if name.endswith("-operator") else None


def configured_in(deployment: Raw) -> Configured:
    """How the operator of this Deployment is configured. ValueError where it can't be, as one of another version.

    Options that say nothing of its settings (ports, the election) are passed over.
    """
    containers = deployment["spec"]["template"]["spec"]["containers"]
    parser = _SettingsParser(add_help=False, allow_abbrev=False)
    add_settings(parser)
    options, _ = parser.parse_known_args([str(arg) for container in containers for arg in container.get("args") or []])
    return configured_by(options)


class _SettingsParser(argparse.ArgumentParser):
    """A parser of somebody else's command line: what is wrong with it does not end this program."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=float(text))


def _document(of: type[Told], option: str, text: str) -> Told:
    try:
        return of.model_validate_json(text)
    except ValidationError as error:
        raise argparse.ArgumentTypeError(spec_problem(error, option)) from error
