"""What a broker refuses and how connections end, given their names in `penstock.core.errors`.

A connection that goes is `Lost`, and another may do. What a broker refuses it would refuse again:
that is an error with a name.
"""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Final

from penstock.client.errors import BrokerUnreachable
from penstock.client.padres.endpoint import Endpoint
from penstock.content import LanguageError
from penstock.core.errors import (
    AccessRefused,
    ConnectionForced,
    FrameError,
    PenstockError,
    ResourceExhausted,
)
from penstock.wire.padres.conditions import error_of
from penstock.wire.padres.envelope import Envelope
from penstock.wire.padres.frames import Failed

#: With these a broker ends what was well: trying again is all there is to do.
_PASSING: Final = (ConnectionForced, ResourceExhausted, FrameError)


class Lost(Exception):
    """The connection went, for the reason the broker gave, if it gave one."""

    def __init__(self, words: str, error: PenstockError | None = None) -> None:
        super().__init__(words)
        self.error = error


def refusal(failed: Failed, envelope: Envelope) -> PenstockError:
    """Why a message was not accepted; with the place of the mistake in its text, if it was that."""
    if 0 <= failed.position <= len(envelope.text):
        problem = failed.text.partition(": ")[2]
        return LanguageError(envelope.text, failed.position, problem)
    return error_of(failed.code, failed.text)


def fatal(lost: Lost) -> PenstockError | None:
    """The error a closed connection is when there is no use in trying again."""
    error = lost.error
    if error is None or isinstance(error, _PASSING) or type(error) is PenstockError:
        return None
    return error


def unreachable(endpoint: Endpoint, error: Exception) -> PenstockError:
    """Why no connection came about."""
    if isinstance(error, Lost):
        failure = fatal(error)
        if isinstance(failure, AccessRefused):
            return AccessRefused(f"{endpoint} does not let {endpoint.user!r} in: {failure}")
        if failure is not None:
            return type(failure)(f"{endpoint}: {failure}")
        if isinstance(error.error, FrameError):
            words = f"what listens there does not speak this PADRES: {error}"
        else:
            words = f"{error} instead of an answer"
    elif isinstance(error, TimeoutError):
        words = "no answer in time"
    elif isinstance(error, ssl.SSLCertVerificationError):
        words = f"certificate not trusted: {error.verify_message}; see ?cafile="
    elif isinstance(error, socket.gaierror):
        words = "no such host"
    elif isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        words = "connection refused"
    else:
        words = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BrokerUnreachable(endpoint.host, endpoint.port, words or type(error).__name__)
