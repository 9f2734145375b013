"""Announcements by the hundred thousand: many in one write, and one word when all are safe.

Where each announcement has somebody who waits for it, that costs more than a small file does.
Whoever announces a whole tree needs to know only when all of it is safe. Blocking, and called in a
thread.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from penstock.client.amqp091.publisher import Publisher
from penstock.core.properties import encode_header, encode_route
from penstock.pump.flow.exchanges import Outgoing, message_ids, properties
from penstock.wire.amqp091.address import parse_address


class Bulk:
    """Opened by the constructor; `patience` is how long a broker may be away."""

    def __init__(self, url: str, patience: float) -> None:
        self._publisher = Publisher(
            parse_address(url), "pump post", mandatory=False, patience=patience
        )
        self._declared: set[str] = set()
        self._ids = message_ids()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._publisher.__exit__(kind, error, trace)

    def send(self, message: Outgoing) -> None:
        """Take a message; waits while too many are under way."""
        if message.exchange not in self._declared:
            self._publisher.declare_exchange(message.exchange, "topic")
            self._declared.add(message.exchange)
        said = properties(message, next(self._ids))
        self._publisher.publish(
            encode_route(message.exchange, message.topic),
            encode_header(said, len(message.body)),
            message.body,
        )

    def flush(self) -> None:
        """Returns when all of it is safe."""
        self._publisher.flush()
