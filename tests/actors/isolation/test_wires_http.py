"""Wires over HTTP behave the same on another node: the same tests, with each wire at the far end of a link.

Left out are those that look into the wire itself, and those that wait for long on virtual time, which two nodes do not share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.transports.client_http import (
    test_misbehaviour,
    test_own_server,
    test_sessions,
    test_streams,
    wire_and_server,
    wire_owner,
)

from .thread_node import again, by_way_of_a_neighbour, neighbour

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.fixture(autouse=True)
async def far(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    """The other node outlasts the process that has opened a wire there, so a test can see what the wire does when its owner is gone."""
    opened = by_way_of_a_neighbour(wire_owner.open_wire)
    for module in (wire_and_server, test_misbehaviour, test_own_server, test_sessions, test_streams):
        if hasattr(module, "open_wire"):
            monkeypatch.setattr(module, "open_wire", opened)
    async with neighbour():
        yield


globals().update(
    again(
        test_misbehaviour,
        "test_a_broken_reply_names_its_request",
        "test_a_connection_that_dies_during_a_request_loses_it_without_a_resend",
        "test_a_connection_closed_by_the_server_is_not_used",
        "test_a_notification_is_no_reply",
        "test_a_json_rpc_refusal_is_a_reply_if_it_names_the_request",
        "test_a_refusal_concerns_one_request",
        "test_a_second_response_is_not_taken_for_that_of_the_next_request",
        "test_a_response_with_a_length_over_the_limit_is_not_read",
        "test_a_response_that_exceeds_the_limit_is_read_no_further",
        "test_a_reply_to_another_id_is_refused",
        "test_an_empty_response_is_a_loss_unless_it_is_202",
        "test_an_error_without_an_id_in_a_response_is_the_reply",
        "test_endless_headers_are_read_up_to_the_limit",
        "test_forgetting_a_request_disconnects",
        "test_a_server_that_does_not_speak_http_is_reported",
        "test_a_server_that_disconnects_during_a_response_loses_the_request",
        "test_a_compressed_response_is_refused",
        "test_a_missing_server_is_reported",
        "test_one_connection_serves_sequential_requests",
        "test_unusual_valid_responses_are_accepted",
        "test_requests_over_the_limit_wait_and_answers_to_the_server_do_not",
        "test_a_page_instead_of_a_reply_is_not_mcp",
    )
)
globals().update(
    again(
        test_own_server,
        "test_a_call_with_a_streamed_reply_works",
    )
)
globals().update(
    again(
        test_sessions,
        "test_a_403_for_more_scopes_is_retried_and_another_is_not",
        "test_a_404_without_a_session_does_not_end_one",
        "test_a_redirect_within_the_origin_is_followed_and_remembered",
        "test_a_server_without_sessions_gets_no_session_id",
        "test_an_invalid_session_id_is_refused",
        "test_a_lost_session_is_reported_to_all_requests_and_proves_nothing_about_execution",
        "test_a_killed_wire_leaves_nothing_and_raises_nothing_afterwards",
        "test_credentials_refused_twice_are_not_retried",
        "test_credentials_may_return_the_same_mapping_with_new_contents",
        "test_failing_and_invalid_credentials_are_reported",
        "test_custom_headers_and_secrets_of_the_url_are_sent",
        "test_an_anonymous_request_is_not_retried",
        "test_other_redirects_are_refused",
        "test_redirects_in_a_circle_are_given_up",
        "test_refused_credentials_are_retried_once",
        "test_the_session_is_deleted_when_the_owner_dies",
        "test_the_standalone_stream_can_report_the_lost_session",
        "test_each_kind_of_request_has_its_headers",
        "test_requests_in_flight_have_a_moment_left_when_the_session_is_lost",
        "test_authorization_is_sent_once_however_often_it_was_given",
    )
)
globals().update(
    again(
        test_streams,
        "test_an_endless_comment_line_is_read_no_further",
        "test_a_stream_is_read_byte_by_byte",
        "test_a_stream_that_ends_early_is_resumed_where_it_broke",
        "test_a_stream_without_event_ids_is_lost_with_its_connection",
        "test_a_standalone_stream_without_event_ids_leaves_a_gap",
        "test_an_oversized_event_fails_the_request_that_it_answers",
        "test_an_endless_event_is_read_no_further",
        "test_every_form_of_stream_is_read",
        "test_a_reply_on_the_standalone_stream_is_delivered",
    )
)
