"""Whether a node would have to pull the agent's image: a pull of 20 GB is a load on the registry and on the rack."""

from functools import lru_cache

from precision_operator.core.observe.nodes import NodeFacts
from precision_operator.core.observe.observed import ReportView
from precision_operator.core.reasons import reason_of


def is_cold(node: NodeFacts, image: str, image_digest: str, report: ReportView | None) -> bool:
    """Whether the node has neither been seen with the image nor run it, by this profile's report.

    `image_digest` is what runs keep of an image's name. A kubelet lists its 50 largest images only, so that an image
    that is not listed may be there all the same: then an agent waits for a pull that does not come.
    """
    return image_names(image).isdisjoint(node.images) and not _has_run(image_digest, report)


def _has_run(image_digest: str, report: ReportView | None) -> bool:
    attempt = report.status.attempt if report is not None and report.status is not None else None
    if attempt is None or attempt.basis.get("agent") != image_digest:
        return False
    return attempt.outcome == "succeeded" or (attempt.outcome == "failed" and not reason_of(attempt.reason).never_ran)


@lru_cache
def image_names(image: str) -> frozenset[str]:
    """The names under which a node may list an image: runtimes write out Docker Hub's, and drop tags beside digests."""
    repository, at, digest = image.partition("@")
    if at:
        head, slash, last = repository.rpartition("/")
        image = f"{head}{slash}{last.partition(':')[0]}@{digest}"
    return frozenset({image, f"docker.io/{image}", f"docker.io/library/{image}"})
