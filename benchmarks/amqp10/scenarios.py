"""What is measured, as data: how messages are settled, how large they are and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: Credit of a receiver that settles nothing, and of one that settles every delivery.
CREDIT: Final = 20_000
WORK_CREDIT: Final = 500
#: Deliveries that one disposition settles.
SETTLE: Final = 100


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table; messages go to one queue and come from it."""

    name: str
    title: str
    messages: int  #: of one run, unless the caller wants another number
    body: int = 16
    settled: bool = True  #: nobody answers anything
    durable: bool = False
    properties: bool = False  #: messages have properties, and application properties
    batch: int = 100  #: messages a write
    ahead: int = 20_000  #: how far the sender may be ahead of the receiver
    unsettled: int = 0  #: and of the broker's dispositions


SCENARIOS: Final = {
    scenario.name: scenario
    for scenario in (
        Scenario("s", "settled, transient, 16 B, 1 → 1", 400_000),
        Scenario("s1k", "settled, transient, 1 KiB, 1 → 1", 300_000, body=1024),
        Scenario(
            "props",
            "settled, transient, 16 B, with properties and application properties",
            200_000,
            properties=True,
        ),
        Scenario(
            "u",
            "durable, unsettled (≤ 1,000), accepted by hundreds (credit 500), 16 B",
            200_000,
            settled=False,
            durable=True,
            unsettled=1_000,
        ),
        Scenario("p", "ping-pong, settled, 1 message in flight, 16 B", 20_000, batch=1, ahead=1),
    )
}
