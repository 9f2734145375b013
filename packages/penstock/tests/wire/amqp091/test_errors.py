"""What a broker's closing words mean."""

from __future__ import annotations

import pytest

from penstock.core.errors import AccessRefused, NotFound, PreconditionFailed
from penstock.wire.amqp091.errors import (
    AmqpConnectionLost,
    error_from_close,
    is_transient_amqp_error,
)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (320, "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"),
        (404, "NOT_FOUND - queue 's' in vhost '/' process is down or inaccessible"),
        (404, "NOT_FOUND - queue 's' in vhost '/' process is stopped by supervisor"),
        (406, "PRECONDITION_FAILED - queue 's' does not have a replica on the local node"),
        (541, "INTERNAL_ERROR"),
    ],
)
def test_a_broker_that_is_starting_or_ending_passes(code: int, text: str) -> None:
    error = error_from_close(code, text, "broker")

    assert is_transient_amqp_error(error)
    assert isinstance(error, AmqpConnectionLost)


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (404, "NOT_FOUND - no queue 's' in vhost '/'", NotFound),
        (404, "NOT_FOUND - no queue 'leaderboard not available' in vhost '/'", NotFound),
        (406, "PRECONDITION_FAILED - invalid arg 'x-stream-offset'", PreconditionFailed),
        (403, "ACCESS_REFUSED", AccessRefused),
    ],
)
def test_what_would_be_the_same_again_does_not_pass(code: int, text: str, kind: type) -> None:
    error = error_from_close(code, text, "broker")

    assert type(error) is kind
    assert not is_transient_amqp_error(error)
    assert str(error) == f"broker: {text} ({code})"
