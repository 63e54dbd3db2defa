"""Controls of what a tenant can't, whose tests need nothing but Python and Helm."""

from tests.security.controls.control import Control, control, controls, replaced

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
_HELD_TEST = f"{_TENANTS}test_against_another_namespace_counts_what_is_held"
_PROPERTIES = "tests/core/test_non_interference.py::"
_SAME = f"{_PROPERTIES}test_others_fare_the_same_with_a_tenants_objects_and_with_what_these_hold"
_SAME_IN_MEMORY = (
    "tests/shell/test_non_interference.py::"
    "test_what_lies_in_other_namespaces_and_their_lines_are_the_same_with_objects_and_shadow"
)
_IMAGE = f"{_REQUEST}test_a_prefix_allows_whole_parts_of_a_path_only"
IMAGE = "run an image that you have not allowed"
ELSEWHERE = "make a pod outside of the profile's namespace, or with other rights than an agent's"
ROOT_HOST_TOKEN = "run as root, on host files, or with a token"
HELD = "keep a node or a place from another tenant by pods and Jobs that hold no GPUs, CPU, memory or pod's place"
NAMES = "read the names of other tenants' pods in a status"
OWN_OBJECT = "hold up another tenant's profiles by what stands in an object of its own, whatever that is"
FORGED = "hold up or mislead another tenant by Jobs, pods, reports or profiles"
WAITING = "keep another tenant waiting by a queue, or by agents that never start"
POWER = "move the fleet's power cap by what its agents report"
PLAN = "take the operator's memory by a plan"

TENANT: tuple[Control, ...] = (
    *controls(
        IMAGE,
        (
            ASKED,
            "the comparison with `allowedImages`",
            "if any(_has_prefix(image, prefix) for prefix in settings.allowed_images):",
            "if image:",
            _IMAGE,
            f"{_REQUEST}test_a_profile_that_cannot_be_measured_is_told_why_and_what_to_do[an image from elsewhere]",
            f"{_REQUEST}test_the_operators_own_image_must_be_allowed_too",
        ),
        (
            ASKED,
            "the end of a prefix at a separator, and not at another port",
            'return prefix.endswith("/") or rest[:1] in ("", "/", "@") or (rest[:1] == ":" and "/" not in rest)',
            "return True",
            f"{_IMAGE}[registry.example/team-registry.example/teamsters/agent:1-False]",
            f"{_IMAGE}[registry.example-registry.example:5000/team/agent:1-False]",
        ),
    ),
    *controls(
        ELSEWHERE,
        (
            MANIFEST,
            "the profile's namespace in the Job",
            'attempt),\n            "namespace": profile.namespace,',
            'attempt),\n            "namespace": "default",',
            WHOLE_JOB,
        ),
        (
            MANIFEST,
            "the account without rights",
            '"serviceAccountName": settings.agent_service_account,',
            '"serviceAccountName": "default",',
            NO_RIGHTS,
        ),
    ),
    *controls(
        ROOT_HOST_TOKEN,
        (
            "operator/precision_operator/core/observe/configuration.py",
            "the default of `runAsUser`",
            "run_as_user: Identifier | None = Field(65532,",
            "run_as_user: Identifier | None = Field(None,",
            WHOLE_JOB,
        ),
        (
            "charts/precision-profiler/templates/agents.yaml",
            "`automountServiceAccountToken: false` of the account",
            "automountServiceAccountToken: false",
            "automountServiceAccountToken: true",
            "tests/chart/test_render.py::test_the_render_is_the_one_that_was_looked_at",
        ),
    ),
    control(
        ROOT_HOST_TOKEN,
        "what the pod's spec leaves out or asks for so that it has no rights on its node",
        (
            *(
                replaced(MANIFEST, words)
                for words in (
                    '"runAsNonRoot": True,',
                    '"seccompProfile": {"type": "RuntimeDefault"},',
                    '"allowPrivilegeEscalation": False,',
                    '"readOnlyRootFilesystem": True,',
                    '"capabilities": {"drop": ["ALL"]},',
                    '"automountServiceAccountToken": False,',
                    '"enableServiceLinks": False,',
                )
            ),
            replaced(
                MANIFEST, '"emptyDir": {"sizeLimit": agent.resources.ephemeral_storage}', '"hostPath": {"path": "/tmp"}'
            ),
            replaced(MANIFEST, '"restartPolicy": "Never",', '"hostPID": True, "hostNetwork": True,'),
        ),
        f"{_MANIFEST}test_a_user_that_the_cluster_chooses_is_not_named",
        NO_RIGHTS,
        WHOLE_JOB,
    ),
    *controls(
        "go past the scheduler, or push out other pods",
        (
            MANIFEST,
            "affinity: the pod names its node",
            '"affinity": {"nodeAffinity": _on_node(facts, settings.agent_defaults.flavor_labels)},',
            '"nodeName": facts.name,',
            f"{_MANIFEST}test_the_agent_goes_through_the_scheduler_to_its_one_node",
        ),
        (
            MANIFEST,
            "the rule that no agent tolerates all taints",
            "return implied + [",
            'return [{"operator": "Exists"}] + [',
            f"{_MANIFEST}test_no_agent_tolerates_everything",
        ),
        (MANIFEST, "the priority class of the pod", '"priorityClassName": settings.priority_class,', "", WHOLE_JOB),
        (
            "charts/precision-profiler/templates/agents.yaml",
            "`preemptionPolicy: Never`",
            "preemptionPolicy: Never\n",
            "",
            "tests/chart/test_render.py::test_the_chart_says_the_same_names_as_the_code",
        ),
    ),
    *controls(
        "hold up another tenant's profiles by limits or suspension",
        (
            ADMISSION,
            "the rule that a suspended profile's limits bind no other one",
            "if isinstance(draft, AcceptedPlan) and not draft.profile.spec.suspend]",
            "if isinstance(draft, AcceptedPlan)]",
            f"{_TENANTS}test_a_suspended_profile_binds_nobody_of_its_own_namespace_either",
        ),
        (
            ADMISSION,
            "the namespace of the reports that power limits go by",
            "partial(_limit, there, observed.watts, of)",
            "partial(_limit, sum(filed.values(), []), observed.watts, of)",
            f"{_TENANTS}test_limits_budgets_and_suspension_of_one_tenant_change_nothing_for_another",
        ),
    ),
    *controls(
        HELD,
        (
            TENANTS,
            "the end of the minute that a Job may be without a pod",
            "YOUNG, LONG = timedelta(minutes=1)",
            "YOUNG, LONG = timedelta(minutes=9)",
            f"{_HELD_TEST}[a Job without a pod-its place]",
            f"{_HELD_TEST}[a Job that Kueue has not admitted-its node]",
        ),
        (
            "operator/precision_operator/core/admission/others.py",
            "one place a node",
            "agents = {node: Agent(",
            "agents = {of.name: Agent(",
            f"{_TENANTS}test_pods_on_one_node_are_one_place_however_many_agents_they_name",
        ),
        (
            "operator/precision_operator/shell/observing/reader.py",
            "what a claim that was never made holds",
            '{} if error.reason == "NotFound" else None',
            "None",
            _SAME_IN_MEMORY,
        ),
        (
            "operator/precision_operator/core/observe/views.py",
            "the look at what the node offers",
            "if offered is None or key in offered",
            "if True",
            _SAME,
            _SAME_IN_MEMORY,
        ),
    ),
    *controls(
        "end another tenant's agents in vain",
        (
            "operator/precision_operator/core/attempts/yielding.py",
            "the count of agents that were ended in vain",
            "return len(unhelped) < MOST_IN_VAIN",
            "return True",
            f"{_PROPERTIES}test_three_agents_an_hour_are_ended_in_vain_for_pods_that_come_and_go",
            "tests/core/test_yielding.py::"
            "test_of_one_namespace_three_agents_at_a_time_may_turn_out_to_have_been_ended_in_vain",
        ),
        (
            "operator/precision_operator/core/attempts/yielding.py",
            "the question in whose namespace a pod has this owner",
            "for record in yields if record.namespace in (pod.namespace, ANOTHERS_POD)]",
            "for record in yields]",
            "tests/core/test_yielding.py::"
            "test_a_pod_of_another_namespace_that_names_the_same_owner_uses_up_none_of_its_tries",
        ),
    ),
    *controls(
        NAMES,
        (
            TENANTS,
            "the question whose the pod is",
            "return pod if is_own or observed.settings.show_other_namespaces else ANOTHERS_POD",
            "return pod",
            "tests/core/test_why.py::test_why_gives_each_reason_and_exactly_its_sentence",
            "tests/core/test_why.py::test_what_came_of_an_agent_that_was_ended_for_a_pod_is_told",
        ),
    ),
    *controls(
        OWN_OBJECT,
        (
            "operator/precision_operator/core/plan.py",
            "the end of its fault at its own profile",
            '    except Exception as error:\n        faults.append(Fault("profile", profile.key, error))',
            '    except LookupError as error:\n        faults.append(Fault("profile", profile.key, error))',
            "tests/shell/test_faults.py::test_of_a_poisoned_profile_the_others_go_on_and_its_status_and_an_event_say_why",
        ),
        raised="RuntimeError",
    ),
    *controls(
        OWN_OBJECT,
        (
            "operator/precision_operator/core/status/yields.py",
            "the end of its fault at its own status",
            "except ValueError:",
            "except LookupError:",
            "tests/shell/test_faults.py::test_a_status_that_tells_of_an_agents_end_at_a_time_that_is_none_holds_up_nobody",
        ),
        raised="ValueError",
    ),
    *controls(
        OWN_OBJECT,
        (
            "crds/precision_api/facts/json_text.py",
            "the count of a text's elements before it is parsed",
            "if sum(map(text.count, marks)) <= MOST_ELEMENTS and ",
            "if ",
            "tests/shell/test_pages.py::test_a_text_of_a_megabyte_is_refused_at_the_cost_of_twenty[objects-recipes]",
        ),
        (
            "operator/precision_operator/cluster/client.py",
            "the bound of a page of a list",
            "PAGE_LIMIT_BYTES if limit > 1 else BODY_LIMIT_BYTES",
            "BODY_LIMIT_BYTES",
            "tests/shell/test_pages.py::test_a_list_of_what_tenants_write_holds_a_small_page_of_it[reports]",
        ),
    ),
    *controls(
        "hold up another tenant's plans, or the operator, by the number or size of its own",
        (
            "operator/precision_operator/shell/plans/plan_processes.py",
            "the turns: who came first is first",
            "min(self._waiting, key=self._has.__getitem__)",
            "next(iter(self._waiting))",
            "tests/planner/test_time_limit.py::test_the_plans_of_one_namespace_take_turns_with_those_of_another",
        ),
    ),
    *controls(
        "hold up another tenant by the number of its profiles",
        (
            "operator/precision_operator/core/observe/observed.py",
            "the bound on a namespace's profiles",
            "for uid in uids[most:]",
            "for uid in uids[len(uids) :]",
            "tests/core/test_bound.py::test_the_oldest_are_served_and_those_with_an_agent[the youngest]",
        ),
        (
            "operator/precision_operator/core/observe/observed.py",
            "the question whether an agent beyond the bound holds GPUs",
            "if pod.live and pod.holds_gpus}",
            "if pod.live}",
            "tests/core/test_bound.py::test_the_oldest_are_served_and_those_with_an_agent[a gated pod]",
        ),
        (
            "charts/precision-profiler/templates/agents.yaml",
            "the quota of profiles",
            "count/precisionprofiles.precisionprofiler.io",
            "count/pods",
            "tests/chart/test_render.py::test_each_watched_namespace_has_a_quota_of_profiles",
        ),
    ),
    *controls(
        "hold up another tenant by many claims or events",
        (
            "operator/precision_operator/shell/observing/reader.py",
            "the bound on a node's claims",
            "= number or MOST_CLAIMS, 1",
            "= 10**9, 1",
            "tests/shell/test_yields.py::"
            "test_a_pod_with_any_number_of_claims_takes_its_own_node_alone_for_a_bounded_number_of_reads[allocated]",
        ),
        (
            "operator/precision_operator/shell/observing/reader.py",
            "the bound on a namespace's events",
            ", most=MOST_EVENTS",
            "",
            "tests/shell/test_pages.py::test_so_many_events_of_a_namespace_are_read_and_no_more",
        ),
    ),
    *controls(
        POWER,
        (
            "operator/precision_operator/core/admission/budget_view.py",
            "what the admin says of a pool's watts",
            "if row.name == pool and row.watts_per_gpu is not None:",
            "if row.watts_per_gpu is not None:",
            "tests/core/test_limits.py::test_the_fleets_power_is_what_the_admins_say_else_the_products",
        ),
    ),
    *controls(
        "read another tenant's reports by a plan",
        (
            "operator/precision_operator/shell/plans/capacity_plans.py",
            "the question whether a namespace's plans may read others",
            "if (others := sorted(places - {home})) and home not in self._across:",
            "if not (others := sorted(places - {home})) and not self._across:",
            "tests/planner/test_planning_loop.py::"
            "test_a_plan_reads_other_namespaces_where_an_admin_allows_it[by default]",
        ),
    ),
    *controls(
        FORGED,
        (
            TENANTS,
            "the namespace of the profile that an object names",
            "profiles.get(item.profile_uid, item.namespace) == item.namespace",
            "item",
            _SAME,
        ),
        (
            TENANTS,
            "the namespace of the Job that a pod names",
            "jobs.get(pod.job_uid, pod.namespace) == pod.namespace",
            "pod",
            f"{_TENANTS}test_pods_of_unknown_profiles_are_seen_and_hold_nothing_of_anybody",
        ),
    ),
    control(
        FORGED,
        "the leader's memory of its own Jobs",
        (
            replaced(TENANTS, "held = {j.uid: nodes[j.uid] ", "held = {j.uid: j.node_name "),
            replaced(TENANTS, "turn_on(nodes[j.uid], ", "turn_on(j.node_name, "),
            replaced(TENANTS, "if job.uid in nodes and job.live)", "if job.live)"),
            replaced(TENANTS, "nodes.get(pod.job_uid) == pod", "nodes.get(pod.job_uid, pod.node_name) == pod"),
        ),
        _SAME,
        f"{_TENANTS}test_pods_of_unknown_profiles_are_seen_and_hold_nothing_of_anybody",
    ),
    *controls(
        WAITING,
        (
            TENANTS,
            "the last turn of a namespace whose agents get no node",
            "return vain is not None and ",
            "return False and ",
            f"{_TENANTS}test_a_namespace_whose_turns_got_no_node_comes_last",
        ),
        (
            TENANTS,
            "the sum of what a namespace has had in vain",
            "Vain(row.spent + (until - begin), until, seen.now, row.nodes)",
            "Vain(until - begin, until, seen.now, row.nodes)",
            f"{_PROPERTIES}test_a_tenant_keeps_a_place_without_a_pod_for_no_more_than_fifteen_minutes[queued]",
        ),
        (
            TENANTS,
            "the longer time of a namespace whose queue is slow",
            "timedelta(minutes=1), timedelta(minutes=10)",
            "timedelta(minutes=1), timedelta(minutes=1)",
            f"{_PROPERTIES}test_whose_agents_wait_for_a_node_get_it_beside_a_tenant"
            "[a queue of eight minutes, one at once-runs]",
        ),
        (
            TENANTS,
            "the time within which an agent has started",
            "age > STARTED_WITHIN + timedelta(",
            "age > timedelta(days=2) + timedelta(",
            "tests/core/test_tenants.py::"
            "test_agents_that_do_not_start_keep_their_namespaces_share_of_the_places[4-3-2-once]",
        ),
    ),
    *controls(
        PLAN,
        (
            "operator/precision_operator/planner/answer/work.py",
            "`RLIMIT_DATA` of the process that plans",
            "resource.setrlimit(resource.RLIMIT_DATA, (DATA_BYTES, DATA_BYTES))",
            "pass",
            "tests/planner/test_time_limit.py::"
            "test_in_a_limited_container_a_hungry_plan_is_refused_and_the_next_is_solved",
        ),
    ),
    *controls(
        "No right has a wildcard, and none is over Secrets or over rights.",
        (
            RIGHTS,
            "the operator's table of rights: it reads Secrets too",
            '_cluster("", ("nodes",)',
            '_cluster("", ("nodes", "secrets")',
            f"{_RIGHTS}test_the_table_has_no_wildcard_and_no_power_over_rights",
            f"{_RIGHTS}test_the_table_grants_what_is_pinned_here[operator-cluster]",
            f"{_RIGHTS}test_the_charts_roles_are_the_table[operator]",
        ),
    ),
)
