"""How errors are told to AMQP 0-9-1 peers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core import errors
from penstock.wire.amqp091.errors import CloseReason, close_reason


@pytest.mark.parametrize(
    ("error", "code", "name", "closes_connection"),
    [
        (errors.ContentTooLarge, 311, "CONTENT_TOO_LARGE", False),
        (errors.NoRoute, 312, "NO_ROUTE", False),
        (errors.ConnectionForced, 320, "CONNECTION_FORCED", True),
        (errors.AccessRefused, 403, "ACCESS_REFUSED", False),
        (errors.AuthenticationFailed, 403, "ACCESS_REFUSED", True),
        (errors.NotFound, 404, "NOT_FOUND", False),
        (errors.ResourceLocked, 405, "RESOURCE_LOCKED", False),
        (errors.PreconditionFailed, 406, "PRECONDITION_FAILED", False),
        (errors.QueueFull, 406, "PRECONDITION_FAILED", False),
        (errors.FrameError, 501, "FRAME_ERROR", True),
        (errors.WireSyntaxError, 501, "FRAME_ERROR", True),
        (errors.CommandInvalid, 503, "COMMAND_INVALID", True),
        (errors.ChannelError, 504, "CHANNEL_ERROR", True),
        (errors.UnexpectedFrame, 505, "UNEXPECTED_FRAME", True),
        (errors.NotAllowed, 530, "NOT_ALLOWED", True),
        (errors.ResourceExhausted, 530, "NOT_ALLOWED", True),
        (errors.Unsupported, 540, "NOT_IMPLEMENTED", True),
    ],
)
def test_each_error_has_its_code_its_name_and_its_reach(
    error: type[errors.PenstockError], code: int, name: str, closes_connection: bool
) -> None:
    assert close_reason(error("why")) == CloseReason(code, f"{name} - why", closes_connection)


def test_the_text_says_what_was_wrong() -> None:
    assert close_reason(errors.NotFound("no queue 'x' in vhost '/'")).text == (
        "NOT_FOUND - no queue 'x' in vhost '/'"
    )


def test_an_error_without_a_text_is_its_name() -> None:
    assert close_reason(errors.NotFound()).text == "NOT_FOUND"


def test_an_error_that_is_none_of_ours_tells_the_peer_nothing() -> None:
    assert close_reason(KeyError("secret")) == CloseReason(541, "INTERNAL_ERROR", True)
    assert close_reason(errors.CorruptChunk("segment 7")) == CloseReason(
        541, "INTERNAL_ERROR", True
    )


def test_a_new_kind_of_a_known_error_is_answered_like_it() -> None:
    class NoSuchStream(errors.NotFound):
        pass

    assert close_reason(NoSuchStream("gone")).code == 404


@given(st.text(alphabet=st.characters(), max_size=400))
def test_the_text_fits_a_short_string_whatever_a_peer_called_things(text: str) -> None:
    said = close_reason(errors.NotFound(text)).text

    assert len(said.encode()) <= 255
    assert said.startswith("NOT_FOUND")
