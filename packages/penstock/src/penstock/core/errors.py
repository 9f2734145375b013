"""All errors that peers and users can meet.

One table per protocol maps them to codes (`wire/*/errors.py`), `server/management/http.py` to HTTP
statuses, `cli/errors.py` to exit statuses.
"""

from __future__ import annotations

from typing import ClassVar


class PenstockError(Exception):
    """The base of all errors of Penstock."""

    #: Whether a later attempt may succeed (`core/retry.py`).
    transient: ClassVar[bool] = False


class ConfigurationError(PenstockError):
    """An invalid setting: names the key, its source and what is allowed."""


# Errors of requests about topology or messages.


class NotFound(PenstockError):
    """No such destination, user or virtual host."""


class AccessRefused(PenstockError):
    """Wrong credentials, a missing permission, or a reserved name."""


class AuthenticationFailed(AccessRefused):
    """Unknown user or wrong password."""


class ResourceLocked(PenstockError):
    """An exclusive destination belongs to another connection."""


class PreconditionFailed(PenstockError):
    """The object exists with other properties, or its state does not allow the operation."""


class SchemaViolation(PreconditionFailed):
    """A message that does not conform to the schema of its exchange."""


class NotAllowed(PenstockError):
    """An operation that no permission allows."""


class Unsupported(PenstockError):
    """An operation that the destination does not have."""


class ContentTooLarge(PenstockError):
    """A message that is larger than the limit."""


class ResourceExhausted(PenstockError):
    """A configured limit (connections, channels, queues) is reached."""


class NoRoute(PenstockError):
    """A mandatory message without a matching queue."""


class QueueFull(PenstockError):
    """A full queue that rejects publishes."""


# Protocol violations. They end the connection.


class ProtocolError(PenstockError):
    """The peer violates the protocol; the connection ends."""


class FrameError(ProtocolError):
    """A frame with a wrong size, type or end."""


class WireSyntaxError(ProtocolError):
    """Bytes that cannot be decoded."""


class CommandInvalid(ProtocolError):
    """A method that the state does not allow."""


class ChannelError(ProtocolError):
    """A channel that is not open, or already open."""


class UnexpectedFrame(ProtocolError):
    """A frame that does not belong here: content without a method, or more than announced."""


class ConnectionForced(PenstockError):
    """The broker closes the connection: an operator's request, or a shutdown."""


class CorruptChunk(PenstockError):
    """A part of a segment that does not match its checksum."""


class ObjectStoreError(PenstockError, OSError):
    """A directory or bucket cannot be read or written; a later attempt may succeed."""

    transient = True


class DamagedBackup(PenstockError):
    """A part of a backup is missing or does not match its checksum."""


class OverlayLoop(NotAllowed):
    """A link that closes a cycle where `overlay.cycles` is OFF."""


class LinkRefused(NotAllowed):
    """A broker that cannot be a neighbour: this one itself, or one with an unexpected id."""


class NotAdvertised(PreconditionFailed):
    """A publication that conforms to no advertisement of its sender."""
