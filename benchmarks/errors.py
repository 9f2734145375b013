"""What may go wrong in a benchmark: the peer does not run, or what it delivers is wrong."""

from __future__ import annotations

from penstock.core.errors import PenstockError


class PeerFailed(PenstockError):
    """A broker that does not start, goes away, or refuses what a scenario asks of it."""


class WrongDelivery(PenstockError):
    """A broker delivered something else than was published: a figure from it means nothing."""
