"""What a queue was told of itself by its arguments, read once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Limits:
    ttl: int | None = None  #: milliseconds a message may wait
    expires: int | None = None  #: milliseconds the queue may go unused
    max_length: int | None = None
    max_bytes: int | None = None
    reject: bool = False  #: refuse what is over, instead of dropping the oldest
    dead_letter_rejects: bool = False  #: and dead-letter what was refused
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    max_priority: int = 0
    single_active: bool = False
    delivery_limit: int | None = None
    consumer_timeout: int | None = None  #: milliseconds a delivery may go unanswered

    @classmethod
    def of(cls, arguments: dict[str, Any]) -> Limits:
        overflow = arguments.get("x-overflow", "drop-head")
        return cls(
            ttl=arguments.get("x-message-ttl"),
            expires=arguments.get("x-expires"),
            max_length=arguments.get("x-max-length"),
            max_bytes=arguments.get("x-max-length-bytes"),
            reject=overflow != "drop-head",
            dead_letter_rejects=overflow == "reject-publish-dlx",
            dead_letter_exchange=arguments.get("x-dead-letter-exchange"),
            dead_letter_key=arguments.get("x-dead-letter-routing-key"),
            max_priority=arguments.get("x-max-priority", 0),
            single_active=arguments.get("x-single-active-consumer", False),
            delivery_limit=arguments.get("x-delivery-limit"),
            consumer_timeout=arguments.get("x-consumer-timeout"),
        )

    @property
    def bounded(self) -> bool:
        return self.max_length is not None or self.max_bytes is not None

    def exceeded(self, count: int, size: int) -> bool:
        """Whether so many messages with so many bytes are more than may wait."""
        return (self.max_length is not None and count > self.max_length) or (
            self.max_bytes is not None and size > self.max_bytes
        )
