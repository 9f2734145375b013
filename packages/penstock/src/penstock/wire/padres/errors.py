"""Error codes of PADRES and the errors they stand for.

Codes are AMQP's where it has one. An error that is not in the table has the code of its nearest
ancestor; an unknown code is a `PenstockError`.
"""

from __future__ import annotations

from typing import Final

from penstock.core.errors import (
    AccessRefused,
    CommandInvalid,
    ConnectionForced,
    ContentTooLarge,
    FrameError,
    NotAllowed,
    NotFound,
    PenstockError,
    PreconditionFailed,
    QueueFull,
    ResourceExhausted,
    ResourceLocked,
    Unsupported,
    WireSyntaxError,
)

INTERNAL_ERROR: Final = 541

ERROR_CODES: Final[dict[type[PenstockError], int]] = {
    ContentTooLarge: 311,
    ConnectionForced: 320,
    AccessRefused: 403,
    NotFound: 404,
    ResourceLocked: 405,
    PreconditionFailed: 406,
    FrameError: 501,
    WireSyntaxError: 502,
    CommandInvalid: 503,
    ResourceExhausted: 506,
    QueueFull: 507,
    NotAllowed: 530,
    Unsupported: 540,
}
_ERRORS: Final = {code: kind for kind, code in ERROR_CODES.items()}


def error_code(error: Exception) -> int:
    for kind in type(error).__mro__:
        if kind in ERROR_CODES:
            return ERROR_CODES[kind]
    return INTERNAL_ERROR


def error_from_code(code: int, text: str) -> PenstockError:
    return _ERRORS.get(code, PenstockError)(text)
