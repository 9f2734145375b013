"""Takes turns between the brokers, round by round, so that whatever else the machine does in the
meantime falls on all of them.

All brokers run from the first round of the loads to the last. Each scenario is preceded by a short
round that is not counted: the first messages find cold caches and, in RabbitMQ, small heaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Generic, Protocol, TypeVar

from benchmarks.harness.measurement import Measurement
from benchmarks.harness.memory import Footprint, Idleness, footprint
from benchmarks.harness.pump import Progress
from benchmarks.peers import Peer, Starter

#: Given what is being measured and how many steps that has, returns where to report progress.
Announce = Callable[[str, int], Progress]

_WARM_UP_FRACTION = 10


class Named(Protocol):
    @property
    def name(self) -> str: ...


S = TypeVar("S", bound=Named)


@dataclass(frozen=True, slots=True)
class Trial(Generic[S]):
    """What is run in every round: how a scenario is measured, and with how many messages."""

    scenarios: Sequence[S]
    measure: Callable[[S, Peer, int, Progress], Measurement]
    messages: Callable[[S, Peer], int]  #: none: this broker cannot run this scenario


@contextmanager
def running(start: Starter) -> Iterator[Peer]:
    with TemporaryDirectory(prefix="penstock-bench-") as directory:
        peer = start(Path(directory))
        try:
            yield peer
        finally:
            peer.close()


def loads(
    trial: Trial[S], starters: Sequence[Starter], rounds: int, announce: Announce
) -> Iterator[tuple[Peer, Measurement]]:
    """Each scenario on each broker in turn."""
    with ExitStack() as stack:
        peers = [stack.enter_context(running(start)) for start in starters]
        for scenario in trial.scenarios:
            for round_ in range(rounds + 1):
                stage = f"round {round_} of {rounds}" if round_ else "warm-up"
                for peer in peers:
                    messages = trial.messages(scenario, peer)
                    if not messages:
                        continue
                    count = messages if round_ else max(messages // _WARM_UP_FRACTION, 1)
                    progress = announce(f"({scenario.name}) {peer.name}, {stage}", count)
                    measurement = trial.measure(scenario, peer, count, progress)
                    if round_:
                        yield peer, measurement


def footprints(
    idleness: Idleness, starters: Sequence[Starter], connections: int, announce: Announce
) -> Iterator[tuple[Peer, Footprint]]:
    """Of freshly started brokers, one after the other."""
    for start in starters:
        with running(start) as peer:
            progress = announce(f"memory {peer.name}, {idleness.title}", connections)
            yield peer, footprint(peer, idleness, connections, progress)
