"""Reserved classes, and withdrawals of messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

RESERVED_CLASSES: Final = frozenset(
    {
        *("BROKER_CONTROL", "BROKER_MONITOR", "BROKER_INFO", "BROKER_ORDER", "NETWORK_DISCOVERY"),
        *("GLOBAL_FD", "HEARTBEAT_MANAGER", "TRACEROUTE_MESSAGE", "MSG_SET_DELIVERY_CLASS"),
        *("DB_CONTROL",),
    }
)


WITHDRAWN_KINDS: Final = {
    EnvelopeKind.UNADVERTISE: EnvelopeKind.ADVERTISE,
    EnvelopeKind.UNSUBSCRIBE: EnvelopeKind.SUBSCRIBE,
    EnvelopeKind.UNCOMPOSITE: EnvelopeKind.COMPOSITE,
}
_WITHDRAWAL_KINDS: Final = {done: undoing for undoing, done in WITHDRAWN_KINDS.items()}


def withdrawal_of(envelope: PadresEnvelope, tree: str | None = None) -> PadresEnvelope:
    """The withdrawal of a message, along one tree or that of the message."""
    return replace(
        envelope,
        kind=_WITHDRAWAL_KINDS[envelope.kind],
        text=envelope.id,
        tree=envelope.tree if tree is None else tree,
    )
