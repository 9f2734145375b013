"""What can go wrong between a program and the fabric.

Errors of the broker come as the types of `penstock.core.errors` (`NotFound`, `AccessRefused`,
`PreconditionFailed`, …), whichever protocol carried them; here are those only a client can meet.
All are `PenstockError`s, so one `except` holds the lot.
"""

from __future__ import annotations

from penstock.core.errors import ConfigurationError, NotFound, PenstockError


class UnknownScheme(ConfigurationError):
    """A URL whose scheme no part of this client speaks; names those that are spoken."""


class BrokerUnreachable(PenstockError, ConnectionError):
    """Nothing answered at `host:port`, or what answered was no broker."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"no broker at {host}:{port}: {reason}; is one running? try: penstock up")
        self.host = host
        self.port = port


class FabricClosed(PenstockError):
    """The fabric was closed while something still waited on it."""


class NoService(NotFound):
    """Nobody answers requests of this name; known at once, without a timeout."""


class NoReply(PenstockError, TimeoutError):
    """The service has the request, and has not answered in time."""


class RemoteError(PenstockError):
    """The service failed: `kind` is the name of its exception, `reason` what it said."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind}: {reason}" if reason else kind)
        self.kind = kind
        self.reason = reason
