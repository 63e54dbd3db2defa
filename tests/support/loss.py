"""Losing a node in the middle of its run."""

from dataclasses import dataclass

from precision_api.facts import names
from tests.support.eventually import eventually
from tests.support.history import Object
from tests.support.site import Profile, Scene, node_uid, specs


@dataclass(frozen=True)
class Loss:
    """A profile over three nodes, of which one was deleted while its agent ran; the other two are measured."""

    profile: Profile
    node: str
    uid: str

    def mine(self, items: list[Object]) -> list[Object]:
        """Those that belong to the lost node, not to another one of its name."""
        return [item for item in items if item["metadata"]["labels"][names.LABEL_NODE_UID] == self.uid]


def lose_a_node(scene: Scene) -> Loss:
    """Returns when the profile is complete without the node."""
    node, *_ = scene.add_nodes(*specs(1, "agent-seconds:600"), *specs(2))
    profile = scene.apply()
    loss = Loss(profile, node, node_uid(scene, node))
    eventually(lambda: any(pod["status"]["phase"] == "Running" for pod in loss.mine(profile.pods())))
    scene.lab.delete_node(node)
    profile.completes()
    return loss
