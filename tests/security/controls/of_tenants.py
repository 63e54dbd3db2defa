"""Controls of what a tenant can't, whose tests need nothing but Python and Helm."""

from __future__ import annotations

from tests.security.controls.control import Control, control, replaced

MANIFEST = "operator/precision_operator/core/attempts/manifest.py"
ASKED = "operator/precision_operator/core/eligibility/request.py"
ADMISSION = "operator/precision_operator/core/admission/turns.py"
TENANTS = "operator/precision_operator/core/observe/tenants.py"
RIGHTS = "operator/precision_operator/core/rbac.py"
_MANIFEST = "tests/core/test_manifest.py::"
_REQUEST = "tests/core/test_request.py::"
_TENANTS = "tests/core/test_tenants.py::"
_RIGHTS = "tests/chart/test_rbac.py::"
WHOLE_JOB = f"{_MANIFEST}test_the_job_on_a_gb200_tray_is_as_it_was_looked_at"
NO_RIGHTS = f"{_MANIFEST}test_the_agent_gets_no_rights_and_no_token"
_FORGED_TEST = f"{_TENANTS}test_what_bears_the_labels_or_the_owner_of_another_namespace_counts_as_nobodys"
USER_LEFT_OUT = f"{_MANIFEST}test_a_user_that_the_cluster_chooses_is_not_named"
_IMAGE = f"{_REQUEST}test_a_prefix_allows_whole_parts_of_a_path_only"
IMAGE = "run an image that you have not allowed"
ELSEWHERE = "make a pod outside of the profile's namespace, or with other rights than an agent's"
ROOT_HOST_TOKEN = "run as root, on host files, or with a token"
SCHEDULER = "go past the scheduler, or push out other pods"
OTHER_TENANTS = "hold up another tenant's profiles by limits or suspension"
OWN_OBJECT = "hold up another tenant's profiles by what stands in an object of its own, whatever that is"
MANY_PLANS = "hold up another tenant's plans by the number of its own"
FORGED = "pass off a Job, a pod or a report as another namespace's"
PLAN = "take the operator's memory by a plan"
NO_WILDCARD = "No right has a wildcard, and none is over Secrets or over rights."

TENANT: tuple[Control, ...] = (
    control(
        "image prefixes",
        IMAGE,
        "the comparison with `allowedImages`",
        replaced(ASKED, "if any(_has_prefix(image, prefix) for prefix in settings.allowed_images):", "if image:"),
        _IMAGE,
        f"{_REQUEST}test_a_profile_that_cannot_be_measured_is_told_why_and_what_to_do[an image from elsewhere]",
        f"{_REQUEST}test_the_operators_own_image_must_be_allowed_too",
    ),
    control(
        "whole parts of an image's path",
        IMAGE,
        "the end of a prefix at a separator, and not at another port",
        replaced(
            ASKED,
            'return prefix.endswith("/") or rest[:1] in ("", "/", "@") or (rest[:1] == ":" and "/" not in rest)',
            "return True",
        ),
        f"{_IMAGE}[registry.example/team-registry.example/teamsters/agent:1-False]",
        f"{_IMAGE}[registry.example-registry.example:5000/team/agent:1-False]",
    ),
    control(
        "namespace of the profile",
        ELSEWHERE,
        "the profile's namespace in the Job",
        replaced(MANIFEST, '"namespace": profile.namespace,', '"namespace": "default",'),
        WHOLE_JOB,
    ),
    control(
        "agents' account",
        ELSEWHERE,
        "the account without rights",
        replaced(MANIFEST, '"serviceAccountName": settings.agent_service_account,', '"serviceAccountName": "default",'),
        NO_RIGHTS,
    ),
    control(
        "no root",
        ROOT_HOST_TOKEN,
        "`runAsNonRoot`",
        replaced(MANIFEST, '"runAsNonRoot": True,'),
        USER_LEFT_OUT,
        NO_RIGHTS,
        WHOLE_JOB,
    ),
    control(
        "user 65532",
        ROOT_HOST_TOKEN,
        "the default of `runAsUser`",
        replaced(
            "operator/precision_operator/core/observe/agent_defaults.py",
            "run_as_user: Identifier | None = Field(65532,",
            "run_as_user: Identifier | None = Field(None,",
        ),
        WHOLE_JOB,
    ),
    control(
        "seccomp",
        ROOT_HOST_TOKEN,
        "`seccompProfile: RuntimeDefault`",
        replaced(MANIFEST, '"seccompProfile": {"type": "RuntimeDefault"},'),
        USER_LEFT_OUT,
    ),
    control(
        "privilege escalation",
        ROOT_HOST_TOKEN,
        "`allowPrivilegeEscalation: false`",
        replaced(MANIFEST, '"allowPrivilegeEscalation": False,'),
        NO_RIGHTS,
    ),
    control(
        "read-only root",
        ROOT_HOST_TOKEN,
        "`readOnlyRootFilesystem`",
        replaced(MANIFEST, '"readOnlyRootFilesystem": True,'),
        NO_RIGHTS,
    ),
    control(
        "capabilities",
        ROOT_HOST_TOKEN,
        "`capabilities: {drop: [ALL]}`",
        replaced(MANIFEST, '"capabilities": {"drop": ["ALL"]},'),
        NO_RIGHTS,
    ),
    control(
        "no host files",
        ROOT_HOST_TOKEN,
        "emptyDir alone: the agent's /tmp is the node's",
        replaced(
            MANIFEST,
            '{"name": "tmp", "emptyDir": {"sizeLimit": agent.resources.ephemeral_storage}}',
            '{"name": "tmp", "hostPath": {"path": "/tmp"}}',
        ),
        WHOLE_JOB,
    ),
    control(
        "no host namespaces",
        ROOT_HOST_TOKEN,
        "the pod's own network and processes",
        replaced(
            MANIFEST, '"restartPolicy": "Never",', '"restartPolicy": "Never", "hostPID": True, "hostNetwork": True,'
        ),
        WHOLE_JOB,
    ),
    control(
        "no token",
        ROOT_HOST_TOKEN,
        "`automountServiceAccountToken: false` of the pod",
        replaced(MANIFEST, '"automountServiceAccountToken": False,'),
        NO_RIGHTS,
    ),
    control(
        "no token of the account",
        ROOT_HOST_TOKEN,
        "`automountServiceAccountToken: false` of the account",
        replaced(
            "charts/precision-profiler/templates/agents.yaml",
            "automountServiceAccountToken: false",
            "automountServiceAccountToken: true",
        ),
        "tests/chart/test_render.py::test_agents_get_no_token",
    ),
    control(
        "no addresses of services",
        ROOT_HOST_TOKEN,
        "`enableServiceLinks: false`",
        replaced(MANIFEST, '"enableServiceLinks": False,'),
        WHOLE_JOB,
    ),
    control(
        "node affinity",
        SCHEDULER,
        "affinity: the pod names its node",
        replaced(
            MANIFEST,
            '"affinity": {"nodeAffinity": _on_node(facts, settings.agent_defaults.flavor_labels)},',
            '"nodeName": facts.name,',
        ),
        f"{_MANIFEST}test_the_agent_goes_through_the_scheduler_to_its_one_node",
    ),
    control(
        "tolerations by name",
        SCHEDULER,
        "the rule that no agent tolerates all taints",
        replaced(MANIFEST, "return implied + [", 'return [{"operator": "Exists"}] + ['),
        f"{_MANIFEST}test_no_agent_tolerates_everything",
    ),
    control(
        "agents' priority",
        SCHEDULER,
        "the priority class of the pod",
        replaced(MANIFEST, '"priorityClassName": settings.priority_class,'),
        WHOLE_JOB,
    ),
    control(
        "a priority that never preempts",
        SCHEDULER,
        "`preemptionPolicy: Never`",
        replaced("charts/precision-profiler/templates/agents.yaml", "preemptionPolicy: Never\n"),
        "tests/chart/test_render.py::test_the_chart_says_the_same_names_as_the_code",
    ),
    control(
        "limits bind their namespace",
        OTHER_TENANTS,
        "the namespace by which agents are counted",
        replaced(ADMISSION, "if agent.namespace == namespace)", ")"),
        f"{_TENANTS}test_limits_budgets_and_suspension_of_one_tenant_change_nothing_for_another",
        f"{_TENANTS}test_an_agent_of_another_namespace_takes_the_node_that_it_is_on_and_no_more",
    ),
    control(
        "suspended profiles bind nobody",
        OTHER_TENANTS,
        "the rule that a suspended profile's limits bind no other one",
        replaced(
            ADMISSION,
            "return not spec.suspend and has_physical_limits(spec.rollout)",
            "return has_physical_limits(spec.rollout)",
        ),
        f"{_TENANTS}test_a_suspended_profile_binds_nobody_of_its_own_namespace_either",
    ),
    control(
        "watts of one's own reports",
        OTHER_TENANTS,
        "the namespace of the reports that power limits go by",
        replaced(
            ADMISSION,
            "return {namespace: _limits(there) for namespace, there in reports.items()}",
            "return {profile.namespace: _limits(observed.reports) for profile in observed.profiles}",
        ),
        f"{_TENANTS}test_limits_budgets_and_suspension_of_one_tenant_change_nothing_for_another",
    ),
    control(
        "a profile that can't be planned for",
        OWN_OBJECT,
        "the end of its fault at its own profile",
        replaced(
            "operator/precision_operator/core/plan.py",
            '    except Exception as error:\n        faults.append(Fault("profile", profile.key, error))',
            '    except LookupError as error:\n        faults.append(Fault("profile", profile.key, error))',
        ),
        "tests/shell/test_faults.py::test_of_a_poisoned_profile_the_others_go_on_and_its_status_and_an_event_say_why",
        raised="RuntimeError",
    ),
    control(
        "a status with a time that is none",
        OWN_OBJECT,
        "the end of its fault at its own status",
        replaced("operator/precision_operator/core/status/yields.py", "except ValueError:", "except LookupError:"),
        "tests/shell/test_faults.py::test_a_status_that_tells_of_an_agents_end_at_a_time_that_is_none_holds_up_nobody",
        raised="ValueError",
    ),
    control(
        "namespaces' turns at plans",
        MANY_PLANS,
        "the turns: who came first is first",
        replaced(
            "operator/precision_operator/shell/plans/plan_processes.py",
            "min(waiting, key=lambda each: self._has[each[0]])",
            "waiting[0]",
        ),
        "tests/planner/test_solver_processes.py::test_the_plans_of_one_namespace_take_turns_with_those_of_another",
    ),
    control(
        "Jobs and reports of another namespace",
        FORGED,
        "the namespace of the profile that a Job or report names",
        replaced(TENANTS, "profiles.get(item.profile_uid, item.namespace) == item.namespace", "item"),
        f"{_FORGED_TEST}[Jobs]",
        f"{_FORGED_TEST}[reports]",
    ),
    control(
        "pods of another namespace",
        FORGED,
        "the namespace of the profile and the Job that a pod names",
        (
            replaced(TENANTS, "profiles.get(pod.profile_uid, pod.namespace) == pod.namespace", "pod"),
            replaced(TENANTS, "and jobs.get(pod.job_uid, pod.namespace) == pod.namespace"),
        ),
        f"{_FORGED_TEST}[pods with another's profile]",
        f"{_FORGED_TEST}[pods with another's Job]",
    ),
    control(
        "a plan's memory",
        PLAN,
        "`RLIMIT_DATA` of the process that plans",
        replaced(
            "operator/precision_operator/planner/answer/work.py",
            "resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))",
            "pass",
        ),
        "tests/planner/test_solver_processes.py::"
        "test_in_a_limited_container_a_hungry_plan_is_refused_and_the_next_is_solved",
    ),
    control(
        "a right over Secrets",
        NO_WILDCARD,
        "the operator's table of rights: it reads Secrets too",
        replaced(
            RIGHTS,
            'Grant("operator", "cluster", "", ("nodes",)',
            'Grant("operator", "cluster", "", ("nodes", "secrets")',
        ),
        f"{_RIGHTS}test_the_table_has_no_wildcard_and_no_power_over_rights",
        f"{_RIGHTS}test_the_table_grants_what_is_pinned_here[operator-cluster]",
        f"{_RIGHTS}test_the_charts_roles_are_the_table[operator]",
    ),
    control(
        "a wildcard",
        NO_WILDCARD,
        "the operator's table of rights: any verb on nodes",
        replaced(RIGHTS, '("nodes",), _READ,', '("nodes",), ("*",),'),
        f"{_RIGHTS}test_the_table_has_no_wildcard_and_no_power_over_rights",
    ),
)
