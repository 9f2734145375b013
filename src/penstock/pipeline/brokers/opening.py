"""Which kind of streams a broker has: its greeting says.

Penstock names the address of its Arrow ranges when it greets; a broker that does not is read over
AMQP 0-9-1. The finding is a value, so that workers need not ask again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.pipeline.amqp.address import BrokerAddress
from penstock.pipeline.amqp.connection import Connection
from penstock.pipeline.brokers.contract import Streams
from penstock.pipeline.brokers.http import Management
from penstock.pipeline.brokers.ranges import ArrowRanges
from penstock.pipeline.brokers.replays import Replays

#: Where RabbitMQ's management plugin listens unless it is told otherwise.
_MANAGEMENT_PORT: Final = 15672


@dataclass(frozen=True, slots=True)
class Door:
    """How a broker's streams are reached."""

    address: BrokerAddress
    management: str | None  #: the management API's URL, if it is not where the broker says
    ranges: str | None  #: the URL of Penstock's Arrow ranges; none: read over AMQP

    def open(self) -> Streams:
        if self.ranges is not None:
            return ArrowRanges(Management(self.ranges, self.address), self.address.vhost)
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        return Replays(self.address, _api(self.management or f"http://{host}:{_MANAGEMENT_PORT}"))

    def again(self) -> Door:
        """The same broker after a break: it may listen elsewhere now."""
        return find_door(self.address, self.management)


def find_door(address: BrokerAddress, management: str | None) -> Door:
    """Ask the broker which kind it is."""
    with Connection(address) as connection:
        told = connection.greeting.get("arrow")
    if not isinstance(told, str):
        return Door(address, management, None)
    return Door(address, management, told if management is None else f"{_api(management)}/streams")


def _api(management: str) -> str:
    return f"{management.rstrip('/').removesuffix('/api')}/api"
