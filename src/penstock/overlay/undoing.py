"""Messages that undo others."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.wire.padres.envelope import Envelope, Kind

UNDOES: Final = {
    Kind.UNADVERTISE: Kind.ADVERTISE,
    Kind.UNSUBSCRIBE: Kind.SUBSCRIBE,
    Kind.UNCOMPOSITE: Kind.COMPOSITE,
}
_UNDONE_BY: Final = {done: undoing for undoing, done in UNDOES.items()}


def undoing(envelope: Envelope, tree: str | None = None) -> Envelope:
    """The message that undoes one; along one tree, unless it is undone where it went itself."""
    return replace(
        envelope,
        kind=_UNDONE_BY[envelope.kind],
        text=envelope.id,
        tree=envelope.tree if tree is None else tree,
    )
