"""Controls of rules that are no claim of security: the fast tests see them broken."""

from tests.security.controls.control import RULE, controls

OPERATOR = "operator/precision_operator/"
LIMITS = f"{OPERATOR}core/admission/limits.py"
ATTEMPTS = f"{OPERATOR}core/attempts/"
_LIMIT = "tests/core/test_limits.py::test_the_checks_stand_in_this_order_and_each_has_a_situation_that_it_stops"
_RETRY = "tests/core/test_retry.py::"

RULES = controls(
    RULE,
    (LIMITS, "maxConcurrent", "if request.view.agents >= limit else None", "if False else None", _LIMIT),
    (
        LIMITS,
        "the wait for idle GPUs",
        "if not _idle_required(request) or occupancy is None or occupancy.holder is None:",
        "if True:",
        _LIMIT,
    ),
    (
        f"{ATTEMPTS}node_state.py",
        "the quarantine",
        "if status is None or status.quarantine is None:",
        "if True:",
        f"{_RETRY}test_a_quarantined_node_is_not_released_by",
    ),
    (
        f"{ATTEMPTS}retry.py",
        "the last retry",
        "attempt.failures > retry.limit",
        "attempt.failures >= retry.limit",
        f"{_RETRY}test_a_run_has_failed_on_a_node_when_its_retries_are_spent",
    ),
    (
        f"{OPERATOR}core/results/ingest.py",
        "that a disruption is no failure",
        '(problem.outcome == "failed")',
        "True",
        f"{_RETRY}test_disruptions_alone_never_fail_a_run",
    ),
    (
        f"{OPERATOR}core/results/outliers.py",
        "that throttled nodes are no reference",
        "if rows[node].usable and not rows[node].throttled)",
        "if rows[node].usable)",
        "tests/core/test_outliers.py::test_throttled_nodes_shift_no_reference_and_are_judged_all_the_same",
    ),
    (
        f"{ATTEMPTS}yielding.py",
        "who got the GPUs of an ended agent",
        'return "bound" if record.owner in owners else "taken" if owners else "pending"',
        'return "pending"',
        "tests/core/test_yielding.py::test_who_got_the_gpus_of_an_agent_decides_what_its_end_came_to",
    ),
    (
        f"{OPERATOR}shell/observing/yields.py",
        "the question who got them",
        "return known or fate_of_pending(record, [holder async for holder in self._holders(record)])",
        'return "pending"',
        "tests/shell/test_yields.py::test_another_pod_that_got_the_gpus_is_told_apart_by_its_owner",
    ),
    (
        f"{OPERATOR}shell/leader_election.py",
        "a leader's deadline of renewal",
        "return self._clock.now() < self._until",
        "return self._until > -math.inf",
        "tests/shell/test_leader_election.py::test_there_are_never_two_leaders_and_in_quiet_times_there_is_one",
    ),
    (
        f"{OPERATOR}cluster/watching.py",
        "the end of a watch without its right",
        "if error.status == 403:",
        "if error.status == 0:",
        "tests/cluster/test_watching.py::test_a_right_that_is_lost_while_the_watch_goes_on_is_shown_by_the_second_list",
    ),
    (
        "agent/precision_agent/results/result.py",
        "that power whose counter disagrees does not count",
        "return (COUNTER_DISAGREES,)",
        "pass",
        "tests/agent/test_node_run.py::"
        "test_sensors_that_can_not_be_trusted_take_the_energy_and_say_so_and_nothing_else",
    ),
    (
        "crds/precision_api/exchange/wire.py",
        "the digest of a full result",
        "if hashlib.sha256(packed).hexdigest() == detail.sha256:",
        "if packed:",
        "tests/api/test_wire.py::test_a_broken_log_has_a_named_reason[a character changed]",
    ),
)
