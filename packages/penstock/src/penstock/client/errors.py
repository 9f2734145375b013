"""Errors that only a client raises.

Errors of the broker have the types of `penstock.core.errors` (`NotFound`, `AccessRefused`,
`PreconditionFailed`, …), whatever the protocol. All are subclasses of `PenstockError`.
"""

from __future__ import annotations

import errno
import socket
import ssl

from penstock.core.errors import ConfigurationError, NotFound, PenstockError


class UnknownScheme(ConfigurationError):
    """The client does not support the scheme of the URL."""


class BrokerUnreachable(PenstockError, ConnectionError):
    """Nothing answered at `host:port`, or what answered is not a broker."""

    def __init__(self, host: str, port: int, reason: str) -> None:
        super().__init__(f"no broker at {host}:{port}: {reason}; is one running? try: penstock up")
        self.host = host
        self.port = port


class TlsHandshakeFailed(BrokerUnreachable, ConfigurationError):
    """The broker's certificate is not trusted, say. Another attempt would fail as well."""


class FabricClosed(PenstockError):
    """The fabric was closed during the operation, or before it."""


class NoService(NotFound):
    """No program serves requests of this name. The broker reports this immediately."""


class NoReply(PenstockError, TimeoutError):
    """The service has not replied within the timeout."""


class RemoteError(PenstockError):
    """The service failed: `kind` is the type of its exception, `reason` its text."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind}: {reason}" if reason else kind)
        self.kind = kind
        self.reason = reason


def connect_error(host: str, port: int, error: Exception) -> PenstockError:
    """The error to raise when a connection could not be opened."""
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsHandshakeFailed(
            host,
            port,
            f"certificate not trusted: {error.verify_message}; set cafile= in the URL, or "
            "tlsCaFile, to the file of its certificate authority",
        )
    if isinstance(error, ssl.SSLError):
        return TlsHandshakeFailed(host, port, f"TLS handshake failed: {error.reason or error}")
    if isinstance(error, TimeoutError):
        reason = "no answer in time"
    elif isinstance(error, socket.gaierror):
        reason = "no such host"
    elif isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        reason = "connection refused"
    else:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BrokerUnreachable(host, port, reason or type(error).__name__)
