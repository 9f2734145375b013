"""What can be wrong with an overlay."""

from __future__ import annotations

from penstock.core.errors import NotAllowed, PreconditionFailed


class OverlayLoop(NotAllowed):
    """A link closes a cycle, and the overlay was told that there are none."""


class LinkRefused(NotAllowed):
    """A broker that cannot be a neighbour: this one itself, or another than was meant."""


class NotAdvertised(PreconditionFailed):
    """A publication that conforms to nothing its sender advertised."""
