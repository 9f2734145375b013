"""Takes turns between the brokers, round by round, so that whatever else the machine does in the
meantime falls on both.

All brokers run from the first round of the loads to the last. Each scenario is preceded by a short
round that is not counted: the first messages find cold caches and, in RabbitMQ, small heaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.broker.load import Measurement, measure
from benchmarks.broker.memory import Footprint, footprint
from benchmarks.broker.pump import Progress
from benchmarks.broker.scenarios import Scenario
from benchmarks.peers import Peer

Starter = Callable[[Path], Peer]
#: Given what is being measured and how many steps that has, returns where to report progress.
Announce = Callable[[str, int], Progress]

_WARM_UP_FRACTION = 10


@contextmanager
def running(start: Starter) -> Iterator[Peer]:
    with TemporaryDirectory(prefix="penstock-bench-") as directory:
        peer = start(Path(directory))
        try:
            yield peer
        finally:
            peer.close()


def loads(
    scenarios: Sequence[tuple[Scenario, int]],
    starters: Sequence[Starter],
    rounds: int,
    announce: Announce,
) -> Iterator[tuple[Peer, Measurement]]:
    """Each scenario with its number of messages, on each broker in turn."""
    with ExitStack() as stack:
        peers = [stack.enter_context(running(start)) for start in starters]
        for scenario, messages in scenarios:
            for round_ in range(rounds + 1):
                count = messages if round_ else max(messages // _WARM_UP_FRACTION, 1)
                stage = f"round {round_} of {rounds}" if round_ else "warm-up"
                for peer in peers:
                    progress = announce(f"({scenario.name}) {peer.name}, {stage}", count)
                    measurement = measure(scenario, peer, count, progress)
                    if round_:
                        yield peer, measurement


def footprints(
    starters: Sequence[Starter], connections: int, announce: Announce
) -> Iterator[tuple[Peer, Footprint]]:
    """Of freshly started brokers, one after the other."""
    for start in starters:
        with running(start) as peer:
            progress = announce(f"memory {peer.name}", connections)
            yield peer, footprint(peer, connections, progress)
