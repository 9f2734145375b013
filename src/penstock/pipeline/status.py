"""How a flow is doing, put together from its progress, its lake and the broker's streams."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from penstock.core.errors import PenstockError
from penstock.pipeline.brokers.opening import find_door
from penstock.pipeline.claims import Claim
from penstock.pipeline.lake import Size
from penstock.pipeline.place import Place
from penstock.pipeline.progress import Done, Progress, State
from penstock.wire.amqp091.address import parse_address


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind its streams a flow is; unknown where the broker does not answer."""

    messages: int | None
    seconds: float | None
    reason: str = ""  #: why it is not known


@dataclass(frozen=True, slots=True)
class Status:
    flow: str
    state: State | None  #: none: it has never run here
    reason: str
    since: float | None
    restarts: int
    done: Done | None
    lag: Lag
    generation: int
    dead_letters: int
    tables: dict[str, Size]


def look(place: Place, broker: str, now: float) -> Status:
    progress = Progress(place.progress, place.flow)
    standing, done = progress.standing(), progress.done()
    state = None if standing is None else standing.state
    alive = place.claims.held(Claim.RUNNING)
    if state in (State.STARTING, State.RUNNING, State.WAITING) and not alive:
        state = State.GONE
    lake = place.lake
    tables = {table.name: table.size() for table in lake.tables()}
    return Status(
        place.flow,
        state,
        standing.reason if standing else "",
        standing.since if standing else None,
        standing.restarts if standing else 0,
        done,
        lag(done, broker, now),
        lake.generation,
        sum(size.rows for name, size in tables.items() if name.endswith(".dead_letters")),
        tables,
    )


def lag(done: Done | None, broker: str, now: float) -> Lag:
    """Of the streams that were read: messages not applied, and the age of what is not."""
    if done is None or not done.ends:
        return Lag(None, None, "no batch yet")
    try:
        with closing(find_door(parse_address(broker), None).open()) as streams:
            ends = streams.ends(list(done.ends), done.ends)
    except (OSError, EOFError, PenstockError) as error:
        return Lag(None, None, f"the broker does not answer: {error}")
    behind = sum(max(0, (end or 0) - done.ends[name]) for name, end in ends.items())
    if not behind or done.newest is None:
        return Lag(behind, 0.0 if not behind else None)
    # The oldest message that waits came after the newest that was applied.
    return Lag(behind, max(0.0, now - done.newest))
