"""Errors as HTTP tells them: a status, a word for programs and a reason for people.

The one place where Penstock's errors meet HTTP. Statuses and words are RabbitMQ's, whose plugin
answers 401 also to a user it knows but will not let do a thing, and 400 to whatever AMQP would
close a channel for.
"""

from __future__ import annotations

from typing import Final

from penstock.core import errors
from penstock.server.management.http import JSON, Response, encode_json


class Refusal(errors.PenstockError):
    """A request that HTTP alone can get wrong."""

    def __init__(self, status: int, word: str, reason: str, **facts: object) -> None:
        super().__init__(reason)
        self.status = status
        self.word = word
        self.facts = facts  #: further members of the answer


def bad_request(reason: str) -> Refusal:
    return Refusal(400, "bad_request", reason)


#: An error that is not listed is answered like the nearest of its ancestors that is.
_STATUS: Final[dict[type[BaseException], tuple[int, str]]] = {
    errors.NotFound: (404, "Object Not Found"),
    errors.AuthenticationFailed: (401, "not_authorized"),
    errors.AccessRefused: (401, "not_authorised"),
    errors.NotAllowed: (401, "not_authorised"),
    errors.ContentTooLarge: (413, "content_too_large"),
    errors.ConnectionForced: (503, "shutting_down"),
    errors.PenstockError: (400, "bad_request"),
}
_FAULT: Final = (500, "internal_error")

#: What makes a browser, or curl, ask for a name and a password.
CHALLENGE: Final = {"www-authenticate": 'Basic realm="Penstock management"'}


def status_of(error: BaseException) -> tuple[int, str]:
    if isinstance(error, Refusal):
        return error.status, error.word
    for kind in type(error).__mro__:
        if (found := _STATUS.get(kind)) is not None:
            return found
    return _FAULT


def answer_to(error: BaseException) -> Response:
    """What a client hears of an error; a fault of the broker's own is told to the log alone."""
    status, word = status_of(error)
    reason = "the broker's log says more" if status == 500 else str(error)
    facts = error.facts if isinstance(error, Refusal) else {}
    headers = dict(JSON)
    if isinstance(error, errors.AuthenticationFailed):
        headers |= CHALLENGE
    return Response(status, encode_json({"error": word, "reason": reason, **facts}), headers)
