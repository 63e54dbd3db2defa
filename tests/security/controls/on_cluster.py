"""Controls whose tests need the lab's control plane."""

from tests.security.controls.control import Change, Control, control, replaced

RIGHTS = "charts/precision-profiler/files/rbac.yaml"
POLICIES = "charts/precision-profiler/templates/policies.yaml"
PEOPLE = "charts/precision-profiler/templates/user-roles.yaml"
AGENTS = "charts/precision-profiler/templates/agents.yaml"
_TOKENS = "tests/e2e/test_stolen_tokens.py::"
_ACT = f"{_TOKENS}test_a_token_is_good_for_what_is_said_and_for_nothing_else"
_LISTED = f"{_TOKENS}test_the_rights_of_a_token_of_the_running_release_are_those_that_were_looked_at"
_RIGHTS = "tests/chart/test_rbac.py::"
_POLICIES = "tests/api/test_policies.py::"
_PROTECTED = f"{_POLICIES}test_what_an_agent_runs_and_measures_is_changed_by_nobody"
CHANGED = (
    "change what an agent runs, or resize, enter or make one, where [`policies.agents`](policies.md#policies) is on"
)
ALL_RIGHTS = "  cluster:\n  - {apiGroups: ['*'], resources: ['*'], verbs: ['*']}\n"
OTHERS = (
    "read Secrets",
    "make a pod",
    "make a Job elsewhere",
    "give itself rights",
    "make another token",
    "change a node",
    "change a profile",
    "read ConfigMaps of another namespace",
)
"""Acts of tests/e2e/test_stolen_tokens.py that neither program's token is good for."""


def bound(kind: str, name: str, subject: str, role: str = "cluster-admin") -> str:
    """A binding of a ClusterRole as a document of a template, in the range over the watched namespaces."""
    place = "" if kind == "ClusterRoleBinding" else ", namespace: {{ $namespace }}"
    return (
        f"---\napiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata: {{name: {name}{place}, labels: "
        f"{{app.kubernetes.io/component: control}}}}\n"
        f"roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {role}}}\n"
        f"subjects: [{{{subject}}}]\n"
    )


ACCOUNT = "kind: ServiceAccount, name: {{ $.Values.agent.serviceAccountName }}, namespace: {{ $namespace }}"
KUBELETS = "apiGroup: rbac.authorization.k8s.io, kind: Group, name: 'system:nodes'"
_EACH = '{{- range $namespace := include "pp.namespaces" . | fromJsonArray }}\n'
AGENTS_ARE_ADMINS: Change = replaced(
    AGENTS, _EACH, _EACH + bound("ClusterRoleBinding", "stolen-{{ $namespace }}", ACCOUNT)
)

ON_CLUSTER: tuple[Control, ...] = (
    control(
        "keep a node or a place from another tenant by pods and Jobs that hold no GPUs, CPU, memory or pod's place",
        "the memory of the Jobs that the operator made, before a real API server",
        Change(
            "operator/precision_operator/shell/observing/gather.py",
            "        return {uid: node for uid, (_, node) in made.items()}",
            "        made = made | {job.uid: (job.namespace, job.node_name) for job in jobs}\n"
            "        return {uid: node for uid, (_, node) in made.items()}",
        ),
        "tests/e2e/test_held.py::test_labelled_pods_and_jobs_that_hold_nothing_take_no_node_and_no_place",
        needs="cluster",
    ),
    control(
        "no redirect is followed",
        "the refusal of redirects, before a real API server",
        Change(
            "operator/precision_operator/cluster/client.py",
            'raise redirected(act, answer.status, answer.header("Location"))',
            "from urllib.parse import urljoin\n"
            '                    there = urljoin(path, answer.header("Location"))\n'
            "                    async with self._response(method, there) as answer:\n"
            "                        yield answer\n"
            "                    return",
        ),
        "tests/e2e/test_support_bundle.py::test_the_bundle_holds_what_the_releases_pods_say_and_no_secret",
        needs="cluster",
    ),
    control(
        "make a pod outside of the profile's namespace, or with other rights than an agent's",
        "the schema's refusal of fields that do not exist",
        replaced(
            "crds/precisionprofiles.yaml",
            '            description: "What to measure, where, how many nodes at once."\n',
            '            description: "What to measure, where, how many nodes at once."\n'
            "            x-kubernetes-preserve-unknown-fields: true\n",
        ),
        "tests/api/test_crds_refuse.py::test_an_invalid_profile_is_refused_with_field_and_remedy"
        "[a field with a typing error]",
        needs="cluster",
    ),
    control(
        "write a report",
        "the role `edit` without reports: it writes them too",
        replaced(
            PEOPLE,
            '"edit" (dict "to" (list "edit" "admin") "resources" (list "capacityplans"',
            '"edit" (dict "to" (list "edit" "admin") "resources" (list "capacityplans" "nodeprecisionreports"',
        ),
        f"{_RIGHTS}test_people_get_our_kinds_with_the_clusters_own_roles_and_nobody_writes_reports[edit]",
        needs="cluster",
    ),
    control(
        "It can't change reports, since kubelets have no right to",
        "the absence of a binding: kubelets are admins",
        replaced(
            PEOPLE,
            "{{- range $name, $role := $roles }}\n",
            bound("ClusterRoleBinding", "kubelets", KUBELETS) + "{{- range $name, $role := $roles }}\n",
        ),
        f"{_RIGHTS}test_a_kubelet_may_not_write_reports",
        needs="cluster",
    ),
    control(
        "ask the API server for anything",
        "the absence of a binding: agents view their namespace",
        replaced(AGENTS, _EACH, _EACH + bound("RoleBinding", "agents-view", ACCOUNT, "view")),
        f"{_RIGHTS}test_the_agents_account_may_do_nothing",
        f"{_TOKENS}test_the_agents_account_has_the_rights_of_anybody",
        needs="cluster",
    ),
    control(
        "It can't read Secrets, make pods or Jobs elsewhere, change nodes or profiles, make tokens, or give itself "
        "rights.",
        "the programs' own rows of rights: they may do everything",
        (
            replaced(RIGHTS, "operator:\n  cluster:\n", f"operator:\n{ALL_RIGHTS}"),
            replaced(RIGHTS, "exporter:\n", f"exporter:\n{ALL_RIGHTS}"),
        ),
        _LISTED,
        *(f"{_ACT}[{act}]" for act in (*OTHERS, "list all pods", "make a Job in the watched namespace")),
        needs="cluster",
    ),
    control(
        CHANGED,
        "the rules of `policies.agents`: who makes agents, that images and Jobs stay, who enters them",
        (
            replaced(
                POLICIES,
                "request.userInfo.username == 'system:serviceaccount:%s:%s-operator'",
                "request.userInfo.username in ['system:serviceaccount:%s:%s-operator', "
                "'system:serviceaccount:kube-system:job-controller']",
            ),
            replaced(POLICIES, " && variables.job in variables.jobs"),
            replaced(
                POLICIES,
                "variables.job == oldObject.metadata.?labels['batch.kubernetes.io/controller-uid'].orValue('')",
                "true",
            ),
            replaced(POLICIES, " + (variables.images ? [] : ['images of spec.containers'])"),
            replaced(POLICIES, '(printf "!variables.agent || %s" $admin)', '"true"'),
        ),
        f"{_POLICIES}test_agents_are_made_by_the_operator_and_the_job_controller_alone"
        "[jobs-system:serviceaccount:profiling:fleet-operator-system:serviceaccount:kube-system:job-controller]",
        f"{_POLICIES}test_the_job_controller_makes_no_agent_of_another_job_than_its_own",
        f"{_PROTECTED}[the pod's Job]",
        f"{_PROTECTED}[the pod's image]",
        f"{_POLICIES}test_an_agent_gets_nothing_more_but_by_whoever_writes_reports[resize]",
        needs="cluster",
    ),
)
