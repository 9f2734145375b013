"""What clients of this broker have asked for: how much, and whether they asked it before."""

from __future__ import annotations

from penstock.core.errors import ResourceExhausted
from penstock.wire.padres.envelope import Envelope, Kind

_Said = tuple[Kind, str, tuple[tuple[str, str], ...]]


class Requests:
    """By hop; neighbours are not among them."""

    def __init__(self, most: int) -> None:
        """`most` is how much one hop may have asked for at a time, 0 for any number."""
        self._most = most
        self._ids: dict[str, dict[str, _Said]] = {}
        self._said: dict[str, dict[_Said, str]] = {}

    def before(self, hop: str, envelope: Envelope) -> str:
        """The id under which a hop has asked the same already, if it has."""
        return self._said.get(hop, {}).get(_said(envelope), "")

    def check(self, hop: str) -> None:
        if self._most and len(self._ids.get(hop, ())) >= self._most:
            raise ResourceExhausted(
                f"{hop} has asked for {self._most} things, and may not for more: undo some"
            )

    def add(self, hop: str, envelope: Envelope) -> None:
        said = _said(envelope)
        self._ids.setdefault(hop, {})[envelope.id] = said
        self._said.setdefault(hop, {})[said] = envelope.id

    def remove(self, hop: str, identity: str) -> None:
        said = self._ids.get(hop, {}).pop(identity, None)
        if said is not None and self._said[hop].get(said) == identity:
            del self._said[hop][said]

    def forget(self, hop: str) -> None:
        self._ids.pop(hop, None)
        self._said.pop(hop, None)


def _said(envelope: Envelope) -> _Said:
    return envelope.kind, envelope.text, envelope.options
