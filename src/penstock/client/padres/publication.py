"""What a program receives: publications, and subscriptions of others where it asked for those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock.content import Publication, Variable, parse_publication
from penstock.content.values import Value
from penstock.wire.padres.envelope import Envelope, Kind


@dataclass(frozen=True, slots=True)
class Received:
    """What was published, and what is known of its way here."""

    publication: Publication
    broker: str  #: who brought it
    envelope: Envelope = field(repr=False)

    @classmethod
    def of(cls, envelope: Envelope, broker: str) -> Received:
        return cls(parse_publication(envelope.text), broker, envelope)

    @property
    def class_name(self) -> str:
        return self.publication.class_name

    @property
    def attributes(self) -> Mapping[str, Value | Variable]:
        return self.publication.attributes

    def __getitem__(self, attribute: str) -> Value | Variable:
        return self.publication.attributes[attribute]

    @property
    def text(self) -> str:
        """As it was said, in the language."""
        return self.envelope.text

    @property
    def id(self) -> str:
        """Given by the broker it was sent to."""
        return self.envelope.id

    @property
    def payload(self) -> bytes:
        return self.envelope.payload

    @property
    def source(self) -> str:
        """Who published it, by the broker that took it: `B1-ada`."""
        return self.envelope.source

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self.envelope.time, UTC)


@dataclass(frozen=True, slots=True)
class Interest:
    """Somebody wants what this client has advertised; or does not want it any more."""

    id: str  #: of the subscription
    text: str  #: the subscription; empty when it was withdrawn
    broker: str  #: who told us
    envelope: Envelope = field(repr=False)

    @classmethod
    def of(cls, envelope: Envelope, broker: str) -> Interest:
        if envelope.kind is Kind.SUBSCRIBE:
            return cls(envelope.id, envelope.text, broker, envelope)
        return cls(envelope.text, "", broker, envelope)

    @property
    def withdrawn(self) -> bool:
        return not self.text
