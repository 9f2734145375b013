"""What a configuration has bound its queue to, so that what it no longer asks for is unbound.

A broker keeps the bindings of a queue. Were they only added to, a `subtopic` that was taken out of
a configuration would go on bringing its posts. What was bound is written down before it is, and
what is not asked for any more leaves the file when the broker has unbound it: killed in between,
the next start does it. Bindings that others have made to the queue stay. As sr3 does it; over
AMQP 0-9-1, for the other protocols cannot be asked to.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from penstock.client.amqp091.connection import connect
from penstock.core.errors import NotFound, PenstockError
from penstock.core.logs import get_logger
from penstock.pump.flow.hearing import Binding
from penstock.wire.amqp091.address import parse_address

log = get_logger(__name__)

#: An exchange and a key.
Bound = tuple[str, str]


class BoundFile:
    """Of one queue at one broker; what is written of another is forgotten."""

    def __init__(self, path: Path, broker: str, queue: str) -> None:
        self._path = path
        self._place = {"broker": broker, "queue": queue}

    def read(self) -> set[Bound]:
        try:
            found = json.loads(self._path.read_text())
            if any(found[name] != value for name, value in self._place.items()):
                return set()
            return {(exchange, key) for exchange, key in found["bindings"]}
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return set()

    def write(self, bound: Iterable[Bound]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        draft.write_text(json.dumps({**self._place, "bindings": sorted(bound)}) + "\n")
        draft.replace(self._path)


def bound(bindings: Iterable[Binding]) -> set[Bound]:
    return {(each.exchange, each.key) for each in bindings}


async def unbind(url: str, queue: str, former: Collection[Bound]) -> set[Bound]:
    """Those that are left: the broker would not, or could not be asked."""
    left = set(former)
    try:
        connection = await connect(parse_address(url), "pump unbinding")
    except PenstockError as error:
        log.warning("what was bound before stays so", queue=queue, reason=str(error))
        return left
    try:
        for exchange, key in sorted(former):
            channel = await connection.channel()  # a refusal ends it
            try:
                await channel.unbind(queue, exchange, key)
                await channel.close()
            except NotFound:
                log.debug("its exchange is gone", exchange=exchange)
            except PenstockError as error:
                log.warning("not unbound", queue=queue, exchange=exchange, reason=str(error))
                continue
            left.discard((exchange, key))
            log.info("unbound", queue=queue, exchange=exchange, topic=key)
    finally:
        await connection.close()
    return left
