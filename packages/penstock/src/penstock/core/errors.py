"""Every error a peer or a person can meet, named once.

An error's text says what was wrong and, where there is something to do about it, what. The
protocols give each its own code (`terminals/*/errors.py`), HTTP its status (`server/management`)
and the command line its exit status (`cli`): one table each.
"""

from __future__ import annotations

from typing import ClassVar


class PenstockError(Exception):
    """The root: whatever is raised on purpose."""

    #: Whether another attempt, later, may succeed (`core/retry.py`).
    transient: ClassVar[bool] = False


class ConfigurationError(PenstockError):
    """A setting that cannot be used: names the key, where it came from and what is allowed."""


# What a request about topology or messages may meet.


class NotFound(PenstockError):
    """There is no such destination, user or virtual host."""


class AccessRefused(PenstockError):
    """Wrong credentials, a missing permission, or a reserved name."""


class AuthenticationFailed(AccessRefused):
    """The user could not be identified."""


class ResourceLocked(PenstockError):
    """An exclusive destination belongs to another connection."""


class PreconditionFailed(PenstockError):
    """It exists, but not as asked for; or the state does not allow it."""


class NotAllowed(PenstockError):
    """The peer may not do this at all, whatever its permissions."""


class Unsupported(PenstockError):
    """The destination exists but has no such operation."""


class ContentTooLarge(PenstockError):
    """A message over the configured limit."""


class ResourceExhausted(PenstockError):
    """A configured limit (connections, channels, queues) is reached."""


class NoRoute(PenstockError):
    """A mandatory message that no queue wanted."""


class QueueFull(PenstockError):
    """A queue that rejects what it has no room for."""


# What a peer may do to the protocol itself. These end a connection.


class ProtocolError(PenstockError):
    """The peer broke the protocol."""


class FrameError(ProtocolError):
    """A frame that cannot be read."""


class WireSyntaxError(ProtocolError):
    """A frame whose fields cannot be read."""


class CommandInvalid(ProtocolError):
    """A method that is not allowed in this state."""


class ChannelError(ProtocolError):
    """A channel that is not open, or open already."""


class UnexpectedFrame(ProtocolError):
    """Content out of order."""


class ConnectionForced(PenstockError):
    """The broker ends the connection: an operator's wish, or a shutdown."""


# What storage may meet.


class CorruptChunk(PenstockError):
    """A stretch of a segment that does not match its checksum."""


# What can be wrong with an overlay.


class OverlayLoop(NotAllowed):
    """A link closes a cycle, and the overlay was told that there are none."""


class LinkRefused(NotAllowed):
    """A broker that cannot be a neighbour: this one itself, or another than was meant."""


class NotAdvertised(PreconditionFailed):
    """A publication that conforms to nothing its sender advertised."""
