"""What the cluster refuses to create; the words are the API server's."""

from precision_operator.core.reasons.row import POLL_SECONDS, of_kind, refusal

waiting = of_kind("waiting", POLL_SECONDS)
ROWS = (
    waiting(
        "QuotaExceeded",
        "the quota of namespace {namespace} does not allow the agent's {stage}: {words}",
        "It continues automatically when the quota allows it: free some of it, or raise it. The node is not at fault.",
        refusal=refusal(10, 120, whole=True, degrades=False),
    ),
    waiting(
        "InvalidJob",
        "the API server rejects the agent's {stage} as invalid: {words}",
        "Correct the field that it names, most often under spec.agent: a changed profile is retried immediately.",
        refusal=refusal(30, 600),
    ),
    waiting(
        "DeniedByPolicy",
        "a policy of the cluster denies the agent's {stage}: {words}",
        "Change the profile as the policy asks, or have the policy's owner admit agents in namespace {namespace}. It "
        "is retried automatically within ten minutes, or immediately after kubectl precision rerun NODE.",
        refusal=refusal(30, 600),
    ),
    waiting(
        "WebhookUnavailable",
        "an admission webhook for the agent's {stage} does not answer: {words}",
        "Fix the webhook, or its failurePolicy. It is retried automatically within two minutes.",
        refusal=refusal(10, 120, whole=True),
    ),
    waiting(
        "NamespaceTerminating",
        "namespace {namespace} is being deleted, so the agent's {stage} can't be created: {words}",
        "No action needed; or apply the profile in another namespace.",
        refusal=refusal(30, 600, whole=True),
    ),
    waiting(
        "PermissionMissing",
        "the operator may not create the agent's {stage} in namespace {namespace}: {words}",
        "Restore the operator's RoleBinding there: upgrade the chart with the namespace in watchNamespaces. It "
        "continues automatically within five minutes.",
        refusal=refusal(10, 300, whole=True),
    ),
    waiting(
        "CreationRefused",
        "the API server refuses the agent's {stage}: {words}",
        "Change what the message names. It is retried automatically within ten minutes, or immediately after "
        "kubectl precision rerun NODE.",
        refusal=refusal(30, 600),
    ),
    waiting(
        "CreationFailed",
        "the API server could not create the agent's {stage}: {words}",
        "It is retried automatically within a minute. If it repeats, check the API server.",
        refusal=refusal(5, 60, whole=True, degrades=False),
    ),
    waiting(
        "NameTaken",
        "an older object has the name of the agent's {stage}: {words}",
        "It is replaced when the older one is gone. If that takes long, check its metadata.finalizers.",
        1.0,
        refusal=refusal(1, 60, degrades=False, notable=False),
    ),
)
