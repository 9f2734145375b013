"""URLs and errors of PADRES.

`padres://user:password@host:5680/BrokerID` and `padress://` (TLS), with the options `tls` (instead
of the other scheme), `vhost=`, `heartbeat=` in seconds and `cafile=`. The default user is `guest`.
The broker id is optional, and verified if it is given.

A lost connection is `PadresConnectionLost`, and the client reconnects. Refusals become the errors
of `penstock.core.errors`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from penstock.client import errors
from penstock.client.errors import BrokerUnreachable
from penstock.client.url import BrokerEndpoint, parse_url
from penstock.content import LanguageError
from penstock.core.addresses import DEFAULT_PORTS
from penstock.core.errors import (
    AccessRefused,
    ConnectionForced,
    FrameError,
    PenstockError,
    ResourceExhausted,
)
from penstock.wire.padres.envelope import PadresEnvelope
from penstock.wire.padres.errors import error_from_code
from penstock.wire.padres.frames import ErrorFrame

#: A silent peer is given up after three intervals.
HEARTBEAT_SECONDS: Final = 15

_SCHEMES: Final = ("padres", "padress")
_OPTIONS: Final = ("tls", "vhost", "heartbeat", "cafile")


@dataclass(frozen=True, slots=True, kw_only=True)
class PadresEndpoint(BrokerEndpoint):
    broker: str = ""  #: its id; empty for any
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = ""  #: empty for the broker's default
    heartbeat: int = HEARTBEAT_SECONDS


def parse_endpoint(url: str) -> PadresEndpoint:
    parts = parse_url(url, _OPTIONS)
    if parts.scheme not in _SCHEMES:
        raise parts.invalid("should be padres://host:port/BrokerID, or padress://")
    if parts.others:
        raise parts.invalid("a PADRES client connects to one broker: give one host")
    broker = unquote(parts.path.removeprefix("/"))
    if any(character in broker for character in "/ _-"):
        raise parts.invalid(f"{broker!r} is not a broker id: it may not have a blank, '_' or '-'")
    tls = parts.scheme == "padress" or "tls" in parts.options
    return PadresEndpoint(
        host=parts.host,
        port=DEFAULT_PORTS["padress" if tls else "padres"] if parts.port is None else parts.port,
        broker=broker,
        user="guest" if parts.user is None else parts.user,
        password="guest" if parts.user is None else parts.password or "",
        vhost=parts.options.get("vhost", ""),
        tls=tls,
        cafile=parts.options.get("cafile"),
        heartbeat=parts.seconds("heartbeat", HEARTBEAT_SECONDS, 0, 3600),
    )


#: The client reconnects after these.
_TRANSIENT: Final = (ConnectionForced, ResourceExhausted, FrameError)


class PadresConnectionLost(Exception):
    """The connection was lost, with the error of the broker, if it sent one."""

    def __init__(self, text: str, error: PenstockError | None = None) -> None:
        super().__init__(text)
        self.error = error


def refusal_error(failed: ErrorFrame, envelope: PadresEnvelope) -> PenstockError:
    """The error for a refused message; a syntax error with its position in the text."""
    if 0 <= failed.position <= len(envelope.text):
        problem = failed.text.partition(": ")[2]
        return LanguageError(envelope.text, failed.position, problem)
    return error_from_code(failed.code, failed.text)


def permanent_error(lost: PadresConnectionLost) -> PenstockError | None:
    """The error of a lost connection that must not be reopened."""
    error = lost.error
    if error is None or isinstance(error, _TRANSIENT) or type(error) is PenstockError:
        return None
    return error


def connect_error(endpoint: PadresEndpoint, error: Exception) -> PenstockError:
    """The error to raise when a connection could not be opened."""
    if isinstance(error, PadresConnectionLost):
        failure = permanent_error(error)
        if isinstance(failure, AccessRefused):
            return AccessRefused(f"{endpoint}: access refused for {endpoint.user!r}: {failure}")
        if failure is not None:
            return type(failure)(f"{endpoint}: {failure}")
        if isinstance(error.error, FrameError):
            reason = f"what listens there does not speak this version of PADRES: {error}"
        else:
            reason = str(error)
        return BrokerUnreachable(endpoint.host, endpoint.port, reason)
    return errors.connect_error(endpoint.host, endpoint.port, error)
