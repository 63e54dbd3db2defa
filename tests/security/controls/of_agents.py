"""Controls of what a hostile agent image and the readers of metrics and bundles can't; without a cluster."""

from tests.security.controls.control import Control, controls

OUTPUT = "operator/precision_operator/cli/output.py"
REDACTION = "operator/precision_operator/cli/commands/support_bundle.py"
CLIENT = "operator/precision_operator/cluster/client.py"
TEXT = "operator/precision_operator/exporter/text.py"
WIRE = "crds/precision_api/exchange/wire.py"
RESULT = "crds/precision_api/exchange/result.py"
_WIRE = "tests/api/test_wire.py::"
_TEXT = "tests/security/test_untrusted_text.py::"
_BUNDLE = "tests/cli/test_support_bundle.py::"
ENDLESS = "make the operator read without end"
WORDS = "write into terminals, logs, pages or metrics anything but words"
_SERVER = "operator/precision_operator/cluster/http_server.py"
_CROWDS = "tests/cluster/test_http_server.py::"

AGENT: tuple[Control, ...] = (
    *controls(
        ENDLESS,
        (
            WIRE,
            "the bound of the termination message",
            "if len(body) > 16 * KUBELET_MAX_BYTES:",
            "if False:",
            f"{_WIRE}test_a_broken_message_has_a_named_reason[far too long]",
        ),
        (
            WIRE,
            "the bound of the log's characters",
            "if len(log) > LOG_MAX_CHARACTERS:",
            "if False:",
            f"{_WIRE}test_a_log_beyond_all_bounds_is_too_large",
        ),
        (
            WIRE,
            "the bound of what a gzip unpacks to",
            "reader.decompress(packed, RESULT_MAX_BYTES)",
            "reader.decompress(packed)",
            f"{_WIRE}test_a_zip_bomb_is_not_unpacked",
        ),
        (
            CLIENT,
            "`limitBytes` in the question to the API server",
            '"limitBytes": str(limit_bytes),',
            "",
            "tests/cluster/test_client.py::test_a_log_or_text_without_end_is_cut_at_the_limit_and_another_answer_is_an_error",
        ),
        (
            CLIENT,
            "the cut of what comes all the same",
            "return content[:limit]",
            "return content",
            "tests/cluster/test_client.py::test_a_log_or_text_without_end_is_cut_at_the_limit_and_another_answer_is_an_error",
        ),
    ),
    *controls(
        "answer for another node or another run",
        (
            "operator/precision_operator/core/results/endings.py",
            "the question where the pod ran",
            "if {pod.node_name, summary.node} != {job.node_name}:",
            "if False:",
            "tests/core/test_ingest.py::test_a_result_of_another_node_than_that_on_which_its_pod_ran_is_none",
        ),
        (
            WIRE,
            "the comparison of the summary's request hash",
            "if request_hash is not None and summary.request_hash != request_hash:",
            "if False:",
            f"{_WIRE}test_the_summary_of_another_request_is_foreign",
            "tests/core/test_ingest.py::test_what_is_no_result_has_a_reason_that_users_can_read"
            "[the answer to another request]",
        ),
        (
            WIRE,
            "the comparison of the full result's request hash",
            "if result.request_hash != request_hash:",
            "if False:",
            f"{_WIRE}test_the_result_of_another_request_is_foreign",
        ),
        (
            "operator/precision_operator/core/results/endings.py",
            "the Job's hash, which the summary is compared with",
            "read_message(end.message, job.request_hash)",
            "read_message(end.message)",
            "tests/core/test_ingest.py::test_what_is_no_result_has_a_reason_that_users_can_read"
            "[the answer to another request]",
        ),
        (
            WIRE,
            "the comparison of run, node and origin",
            "if wrong:",
            "if False:",
            f"{_WIRE}test_summary_and_result_of_different_runs_disagree",
        ),
    ),
    *controls(
        WORDS,
        (
            "crds/precision_api/facts/plain_text.py",
            "the filter of what is not printable",
            '"".join(_shown(sign) for sign in uncontrolled(text))',
            "text",
            f"{_TEXT}test_plain_text_is_printable_and_stays_as_it_is_when_read_again",
            f"{_TEXT}test_what_an_agent_refuses_with_ends_as_words",
            f"{_TEXT}test_what_stands_in_a_result_ends_as_words",
        ),
        (
            RESULT,
            "the filter of messages in a full result",
            "Note = Annotated[str, Field(max_length=1024), AfterValidator(plain)]",
            "Note = Annotated[str, Field(max_length=1024)]",
            f"{_TEXT}test_a_full_results_words_are_plain_wherever_it_is_read_from",
        ),
        (
            RESULT,
            "the filter of lines in a summary",
            "Line = Annotated[str, Field(max_length=200), AfterValidator(one_line)]",
            "Line = Annotated[str, Field(max_length=200)]",
            f"{_TEXT}test_what_stands_in_a_result_ends_as_words",
        ),
        (
            "operator/precision_operator/core/results/log_tail.py",
            "the filter of the log that a report keeps",
            "return plain(last).rstrip()",
            "return last.rstrip()",
            "tests/core/test_log_tail.py::test_whatever_a_log_holds_a_report_can_keep_its_end",
        ),
        (
            OUTPUT,
            "the filter of the plugin's tables",
            "else one_line(str(row[key])) for key in header]",
            "else str(row[key]) for key in header]",
            f"{_TEXT}test_a_table_shows_no_control_characters_and_no_line_that_is_not_its_own",
        ),
        (
            "operator/precision_operator/core/reasons/table.py",
            "the one line of each fact in a sentence",
            "    text = one_line(text)\n",
            "",
            f"{_TEXT}test_what_an_agent_refuses_with_ends_as_words",
        ),
        (
            OUTPUT,
            "the filter of the plugin's CSV",
            "text = one_line(value) if isinstance(value, str) else value",
            "text = value",
            f"{_TEXT}test_programs_read_what_was_written_and_terminals_see_no_control_characters",
        ),
        (
            OUTPUT,
            "the escapes of what is not printable in YAML",
            "return text if text == plain(text) else dumped(False)",
            "return text",
            f"{_TEXT}test_programs_read_what_was_written_and_terminals_see_no_control_characters",
        ),
        (
            "operator/precision_operator/cli/terminal.py",
            "the filter of everything that the plugin prints",
            r'typer.echo("\t".join(map(plain, text.split("\t"))), err=err)',
            "typer.echo(text, err=err)",
            f"{_TEXT}test_what_the_plugin_says_moves_no_cursor",
        ),
        (
            OUTPUT,
            "the escapes of what is not printable in JSON",
            'return "".join(sign if sign == "\\n" or sign.isprintable() else json.dumps(sign)[1:-1] for sign in text)',
            "return text",
            f"{_TEXT}test_programs_read_what_was_written_and_terminals_see_no_control_characters",
        ),
        (
            "operator/precision_operator/cluster/log_format.py",
            "the formatter's one line for each message",
            "record.message = one_line(record.message)",
            "pass",
            f"{_TEXT}test_a_line_of_the_log_stays_one_line",
        ),
        (
            "operator/precision_operator/cluster/log_format.py",
            "the indented lines of a traceback",
            'f"    {one_line(line)}"',
            "line",
            f"{_TEXT}test_what_an_exception_says_looks_like_no_line_of_the_log",
        ),
        (
            OUTPUT,
            "the apostrophe before what a spreadsheet takes for a formula",
            "isinstance(text, str) and FORMULA.match(text)",
            "False",
            f"{_TEXT}test_a_spreadsheet_takes_no_cell_for_a_formula",
        ),
        (
            "operator/precision_operator/drawing/document.py",
            "the escapes of HTML in the page's parts",
            "from html import escape",
            "escape = str",
            f"{_TEXT}test_no_text_adds_a_tag_or_an_attribute_to_a_page",
            f"{_TEXT}test_words_of_a_hostile_result_are_no_tags_on_its_page",
        ),
        (
            "operator/precision_operator/drawing/svg.py",
            "the escapes of HTML in drawings",
            "from html import escape",
            "escape = str",
            f"{_TEXT}test_no_text_adds_a_tag_or_an_attribute_to_a_page",
        ),
        (
            "operator/precision_operator/report/page.py",
            "the escapes of HTML in the page's heading",
            "from html import escape",
            "escape = str",
            f"{_TEXT}test_no_text_adds_a_tag_or_an_attribute_to_a_page",
        ),
    ),
    *controls(
        WORDS,
        (
            TEXT,
            "the escapes of label values",
            """return value.replace("\\\\", r"\\\\").replace("\\n", r"\\n").replace('"', r"\\"")""",
            "return value",
            f"{_TEXT}test_no_label_makes_a_sample_or_a_family",
        ),
        raised="ValueError",
    ),
)

READERS: tuple[Control, ...] = (
    *controls(
        "hold no message, no image and no secret",
        (
            "operator/precision_operator/exporter/families/node.py",
            "the reason alone as label: it is the message",
            'yield (attempt.reason or "",), 1.0',
            'yield (attempt.message or "",), 1.0',
            f"{_TEXT}test_metrics_hold_no_message_no_image_and_no_log",
        ),
    ),
    *controls(
        "16 connections an address and 256 in all",
        (
            _SERVER,
            "the bound for an address",
            "near if len(near) >= MOST_OF_ADDRESS else",
            "",
            f"{_CROWDS}test_connections_are_bounded_and_another_address_is_still_answered",
            f"{_CROWDS}test_of_an_address_the_oldest_half_request_makes_room",
        ),
        (
            _SERVER,
            "the bound for all addresses together",
            "if len(others) >= MOST else []",
            "if False else []",
            f"{_CROWDS}test_connections_are_bounded_and_another_address_is_still_answered",
        ),
        (
            _SERVER,
            "the time of a request",
            "keepalive_timeout=request_seconds,",
            "",
            f"{_CROWDS}test_who_is_late_is_closed",
        ),
        (
            _SERVER,
            "the time of its answer",
            "loop.call_later(response_seconds, _end, request.transport)",
            "pass",
            f"{_CROWDS}test_who_is_late_is_closed",
        ),
        (
            _SERVER,
            "the pace of an answer",
            "end_slow(request.transport, 0)",
            "pass",
            f"{_CROWDS}test_a_response_that_is_read_too_slowly_ends_before_its_time",
        ),
        (
            _SERVER,
            "the choice of the slowest",
            "key=pace).abort()",
            "key=id).abort()",
            f"{_CROWDS}test_of_an_address_the_oldest_half_request_makes_room",
        ),
        (
            _SERVER,
            "the bound of what is read at once",
            ", socket.SO_RCVBUF: 1 << 14",
            "",
            f"{_CROWDS}test_what_is_refused_is_held_no_longer_than_it_is_read",
        ),
        (
            "operator/precision_operator/exporter/server.py",
            "the cut of what is sent at once",
            "for at in range(0, len(part), SENT_BYTES):",
            "for at in range(0, len(part), len(part)):",
            f"{_CROWDS}test_who_reads_slowly_holds_no_body",
        ),
        (
            "charts/precision-profiler/templates/operator.yaml",
            "the port of the probes",
            'include "pp.probes" "probes"',
            'include "pp.probes" "http"',
            "tests/chart/test_dockerfile.py::test_the_operator_understands_what_the_chart_tells_it",
        ),
    ),
    *controls(
        "Deployments own, whatever others label theirs",
        (
            "operator/precision_operator/cli/commands/support_bundle.py",
            "the look at who owns a pod",
            'return any(owner.get("controller") and owner.get("uid") in uids for owner in owners)',
            "return True",
            f"{_BUNDLE}test_logs_and_metrics_are_of_pods_that_the_releases_deployments_own",
        ),
        (
            "operator/precision_operator/cluster/connection.py",
            "the refusal of redirects",
            "if answer.status not in REDIRECTS:",
            "if answer.status:",
            "tests/cluster/test_client.py::test_a_redirect_is_an_error_that_names_its_target_and_is_not_followed",
            "tests/cluster/test_watching.py::test_kopf_follows_no_redirect",
        ),
        (
            CLIENT,
            "the bound of an answer",
            "if limit is None and len(content) > most:",
            "if False:",
            "tests/cluster/test_client.py::test_a_log_or_text_without_end_is_cut_at_the_limit_and_another_answer_is_an_error",
        ),
    ),
    *controls(
        "holds no secret",
        (
            "operator/precision_operator/cli/commands/support_bundle.py",
            "the search for what is written as secrets are",
            "self.files[name] = without_secrets(text)",
            "self.files[name] = text",
            f"{_BUNDLE}test_no_planted_secret_is_in_the_archive",
        ),
        (
            REDACTION,
            "the rule that values of the environment are left out",
            'return {**variable, "value": REMOVED}',
            "return variable",
            f"{_BUNDLE}test_no_planted_secret_is_in_the_archive",
            f"{_BUNDLE}test_the_archive_holds_what_helps",
        ),
        (
            REDACTION,
            "the rule that the copy that `kubectl apply` keeps is left out",
            '("managedFields", "kubectl.kubernetes.io/last-applied-configuration")',
            '("managedFields",)',
            f"{_BUNDLE}test_no_planted_secret_is_in_the_archive",
        ),
        (
            REDACTION,
            "the rule that other annotations of nodes are left out",
            " if GROUP in key}",
            " }",
            f"{_BUNDLE}test_no_planted_secret_is_in_the_archive",
        ),
    ),
)
