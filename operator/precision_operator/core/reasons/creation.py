"""What the cluster refuses to create; the words are the API server's."""

from __future__ import annotations

from precision_operator.core.reasons.row import POLL_SECONDS, Reason, refusal

ROWS = (
    Reason(
        "QuotaExceeded",
        "waiting",
        "the quota of namespace {namespace} does not allow the agent's {stage}: {words}",
        "It continues automatically when the quota allows it: free some of it, or raise it. The node is not at fault.",
        POLL_SECONDS,
        refusal=refusal(10, 120, whole=True, degrades=False),
    ),
    Reason(
        "InvalidJob",
        "waiting",
        "the API server rejects the agent's {stage} as invalid: {words}",
        "Correct the field that it names, most often under spec.agent: a changed profile is retried immediately.",
        POLL_SECONDS,
        refusal=refusal(30, 600),
    ),
    Reason(
        "DeniedByPolicy",
        "waiting",
        "a policy of the cluster denies the agent's {stage}: {words}",
        "Change the profile as the policy asks, or have the policy's owner admit agents in namespace {namespace}. It "
        "is retried automatically within ten minutes, or immediately after kubectl precision rerun.",
        POLL_SECONDS,
        refusal=refusal(30, 600),
    ),
    Reason(
        "WebhookUnavailable",
        "waiting",
        "an admission webhook for the agent's {stage} does not answer: {words}",
        "Fix the webhook, or its failurePolicy. It is retried automatically within two minutes.",
        POLL_SECONDS,
        refusal=refusal(10, 120, whole=True),
    ),
    Reason(
        "NamespaceTerminating",
        "waiting",
        "namespace {namespace} is being deleted, so the agent's {stage} can't be created: {words}",
        "No action needed; or apply the profile in another namespace.",
        POLL_SECONDS,
        refusal=refusal(30, 600, whole=True),
    ),
    Reason(
        "PermissionMissing",
        "waiting",
        "the operator may not create the agent's {stage} in namespace {namespace}: {words}",
        "Restore the operator's RoleBinding there: upgrade the chart with the namespace in watchNamespaces. It "
        "continues automatically within five minutes.",
        POLL_SECONDS,
        refusal=refusal(10, 300, whole=True),
    ),
    Reason(
        "CreationRefused",
        "waiting",
        "the API server refuses the agent's {stage}: {words}",
        "Change what the message names. It is retried automatically within ten minutes, or immediately after "
        "kubectl precision rerun.",
        POLL_SECONDS,
        refusal=refusal(30, 600),
    ),
    Reason(
        "CreationFailed",
        "waiting",
        "the API server could not create the agent's {stage}: {words}",
        "It is retried automatically within a minute. If it repeats, check the API server.",
        POLL_SECONDS,
        refusal=refusal(5, 60, whole=True, degrades=False),
    ),
    Reason(
        "NameTaken",
        "waiting",
        "an older object has the name of the agent's {stage}: {words}",
        "It is replaced when the older one is gone. If that takes long, check its metadata.finalizers.",
        1.0,
        refusal=refusal(1, 60, degrades=False, notable=False),
    ),
)
