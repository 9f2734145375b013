"""Where RabbitMQ 4.3 differs from RabbitMQ 3.10 in AMQP 0-9-1. Penstock does as 3.10.

The tests that show it, by the start of their names, with the parameters after the broker. They are
expected to fail against 4.3; `docs/differences/rabbitmq.md` describes each.
"""

from __future__ import annotations

from typing import Final

_FRAME_MAX = "frame_max is 8192 bytes at least"
_STREAM_TEXT = "another reply text"

RABBITMQ_4: Final = {
    "test_a_wrong_protocol_header_is_answered_with_ours": "answered with the header of AMQP 1.0",
    "test_a_broken_conversation_is_closed_with_the_protocols_own_error[new_rabbitmq-more content": (
        "501 instead of 505"
    ),
    "test_the_limit_is_the_negotiated_one": _FRAME_MAX,
    "test_a_large_body_arrives_whole[new_rabbitmq-4088-4096]": _FRAME_MAX,
    "test_a_large_body_arrives_whole[new_rabbitmq-4089-4096]": _FRAME_MAX,
    "test_a_large_body_arrives_whole[new_rabbitmq-131064-4096]": _FRAME_MAX,
    "test_a_large_body_arrives_whole[new_rabbitmq-131065-4096]": _FRAME_MAX,
    "test_a_large_body_arrives_whole[new_rabbitmq-262144-4096]": _FRAME_MAX,
    "test_a_large_body_arrives_whole[new_rabbitmq-2097152-4096]": _FRAME_MAX,
    "test_a_large_body_arrives_whole[new_rabbitmq-2097153-4096]": _FRAME_MAX,
    "test_frames_fit_the_receivers_limit_not_the_senders": _FRAME_MAX,
    "test_a_return_waits_behind_a_large_delivery": _FRAME_MAX,
    "test_answers_keep_their_order_around_large_messages": _FRAME_MAX,
    "test_what_is_got_waits_behind_what_is_delivered": _FRAME_MAX,
    "test_a_consumer_cancelled_in_the_middle_gets_the_rest": _FRAME_MAX,
    "test_the_next_active_consumer_begins_with_what_the_last_left_unanswered": (
        "the next active consumer gets messages before the last one's are requeued"
    ),
    "test_the_death_is_written_on_it": "headers x-last-death-*",
    "test_copies_are_kept_with_the_key_and_dropped_without": "CC is kept in any case",
    "test_an_unknown_type_closes_the_connection": "406 closes the channel",
    "test_a_global_limit_is_shared_by_the_channel": "global prefetch counts per consumer",
    "test_reading_without_a_prefetch_is_a_406": _STREAM_TEXT,
    "test_reading_without_acknowledging_is_not_implemented": _STREAM_TEXT,
    "test_rejecting_is_not_implemented": "rejecting a message of a stream acknowledges it",
    "test_declaring_it_otherwise_is_a_406[new_rabbitmq-arguments0": _STREAM_TEXT,
    "test_all_types_in_one_table": "tables are decoded and encoded again",
}


def rabbitmq_4_difference(test: str) -> str | None:
    """Why a test fails against RabbitMQ 4.3; None if it passes."""
    if "[new_rabbitmq" not in test:
        return None
    return next((why for start, why in RABBITMQ_4.items() if test.startswith(start)), None)
