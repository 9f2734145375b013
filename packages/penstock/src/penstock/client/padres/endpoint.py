"""What a URL says of a broker that speaks PADRES.

`padres://user:password@host:5680/BrokerID` and `padress://` (TLS). Who is not named is `guest`; the
broker's id may be left out, and is checked where it is not. The rest is in the query: `tls` in
place of the other scheme, `vhost=`, `heartbeat=` seconds, `cafile=`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote

from penstock.client import errors
from penstock.client.errors import BrokerUnreachable
from penstock.client.url import create_tls_context, format_host_port, parse_url
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

#: A peer that vanished without a word is missed after three times as much.
HEARTBEAT_SECONDS: Final = 15

_SCHEMES: Final = ("padres", "padress")
_OPTIONS: Final = ("tls", "vhost", "heartbeat", "cafile")


@dataclass(frozen=True, slots=True, kw_only=True)
class PadresEndpoint:
    host: str
    port: int
    broker: str = ""  #: its id; empty for whichever it is
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = ""  #: empty for the broker's own choice
    tls: bool = False
    cafile: str | None = None
    heartbeat: int = HEARTBEAT_SECONDS

    def tls_context(self) -> ssl.SSLContext | None:
        return create_tls_context(self.cafile) if self.tls else None

    def __str__(self) -> str:
        return format_host_port(self.host, self.port)


def parse_endpoint(url: str) -> PadresEndpoint:
    parts = parse_url(url, _OPTIONS)
    if parts.scheme not in _SCHEMES:
        raise parts.refused("should be padres://host:port/BrokerID, or padress://")
    broker = unquote(parts.path.removeprefix("/"))
    if any(character in broker for character in "/ _-"):
        raise parts.refused(f"{broker!r} is no id of a broker: no blank, '_' or '-'")
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


# What a broker refuses and how connections end, given their names in `penstock.core.errors`.
#
# A connection that goes is `PadresConnectionLost`, and another may do. What a broker refuses it
# would refuse again: that is an error with a name.

#: With these a broker ends what was well: trying again is all there is to do.
_TRANSIENT: Final = (ConnectionForced, ResourceExhausted, FrameError)


class PadresConnectionLost(Exception):
    """The connection went, for the reason the broker gave, if it gave one."""

    def __init__(self, words: str, error: PenstockError | None = None) -> None:
        super().__init__(words)
        self.error = error


def refusal_error(failed: ErrorFrame, envelope: PadresEnvelope) -> PenstockError:
    """Why a message was not accepted; with the place of the mistake in its text, if it was that."""
    if 0 <= failed.position <= len(envelope.text):
        problem = failed.text.partition(": ")[2]
        return LanguageError(envelope.text, failed.position, problem)
    return error_from_code(failed.code, failed.text)


def permanent_error(lost: PadresConnectionLost) -> PenstockError | None:
    """The error a closed connection is when there is no use in trying again."""
    error = lost.error
    if error is None or isinstance(error, _TRANSIENT) or type(error) is PenstockError:
        return None
    return error


def connect_error(endpoint: PadresEndpoint, error: Exception) -> PenstockError:
    """Why no connection came about."""
    if isinstance(error, PadresConnectionLost):
        failure = permanent_error(error)
        if isinstance(failure, AccessRefused):
            return AccessRefused(f"{endpoint} does not let {endpoint.user!r} in: {failure}")
        if failure is not None:
            return type(failure)(f"{endpoint}: {failure}")
        if isinstance(error.error, FrameError):
            words = f"what listens there does not speak this PADRES: {error}"
        else:
            words = str(error)
        return BrokerUnreachable(endpoint.host, endpoint.port, words)
    return errors.connect_error(endpoint.host, endpoint.port, error)
