"""The books of occupancy: a batch's facts entered in one transaction, with the batch's mark.

Counts add up; all else follows from them, from nights and from counts of heads, and is reckoned
again from the first slot a batch touches. A batch that is marked is entered already. One writer at
a time: a lock of the database's says so to other processes.

Time is that of the messages: it is as late as the last of them came. Between batches `pass_time`
moves it on, so that nights come and silent doors go stale with nobody sending.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.gold import anchors, finishing, hearing, slots, standing
from penstock.hives.gold.anchors import Caused
from penstock.hives.gold.facts import NO_COUNTS, Facts
from penstock.hives.gold.places import Places
from penstock.hives.gold.standing import Standing
from penstock.hives.gold.writing import Writer
from penstock.hives.steps.occupancy import NOBODY, SLOT, Counts, added, marked, reckon
from penstock.hives.steps.rollups import days, hours, joined
from penstock.hives.steps.status import TREND_SLOTS, Figures, figures
from penstock.store import Batches, Connection

Numbers = NDArray[np.int64]

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('penstock.hives.gold', %s))"


@dataclass(frozen=True, slots=True)
class Memory:
    """What need not be asked of the database again; of a transaction that failed, nothing is."""

    places: Places | None = None
    clock: int = 0
    #: The slot up to which all hives were looked at, not only those with news.
    looked: int = -1


@dataclass(frozen=True, slots=True)
class Entered:
    """What became of a batch."""

    changed: list[Standing]
    memory: Memory


class Books:
    """The tables of one generation, in one transaction (`search_path` says which)."""

    __slots__ = ("_connection", "_flow", "_generation")

    def __init__(self, connection: Connection, flow: str, generation: int = 0) -> None:
        self._connection = connection
        self._flow = flow
        self._generation = generation
        connection.execute(_LOCK, (generation,))

    def entered(self, batch: int) -> bool:
        return Batches(self._connection).applied(self._flow, batch)

    def enter(self, batch: int, facts: Facts, memory: Memory) -> Entered:
        """A batch that is not marked. What changed of how hives stand."""
        writer = self._writer(batch)
        writer.merge(
            "sensor_state",
            ["sensor_id"],
            facts.states.drop_columns(["sensor"]).append_column("batch", _same(batch, facts)),
            owner="sensor",
        )
        writer.merge(
            "sensor_status",
            ["sensor_id"],
            facts.statuses,
            owner="sensor",
            where="excluded.received_at >= target.received_at",
        )
        writer.merge(
            "dead_letter_count",
            ["day", "stream", "reason"],
            facts.dead_letters,
            {
                "count": "target.count + excluded.count",
                "last_at": "greatest(target.last_at, excluded.last_at)",
            },
        )
        clock = max(memory.clock or hearing.last_heard(self._connection), facts.clock)
        entered = self._settle(writer, facts.counts, clock, memory)
        Batches(self._connection).mark(self._flow, batch, facts.rows)
        return entered

    def pass_time(self, clock: int, memory: Memory) -> Entered:
        """What time alone does, up to then."""
        return self._settle(self._writer(0), NO_COUNTS, max(clock, memory.clock), memory)

    def standings(self) -> list[Standing]:
        return standing.read_all(self._connection)

    def _writer(self, batch: int) -> Writer:
        # Another generation's staging tables are others.
        name = f"{self._flow}-{self._generation}" if self._generation else self._flow
        return Writer(self._connection, name, batch)

    def _settle(self, writer: Writer, counts: Counts, clock: int, memory: Memory) -> Entered:
        places = Places.read(self._connection, memory.places)
        counts = counts.only(np.isin(counts.hive, places.hive))
        # Nights begin with a slot, and silence is told to the slot: within one, only hives with
        # news can change.
        slot = clock // SLOT
        now = slot * SLOT
        every = slot > memory.looked or places is not memory.places
        counted = anchors.new_counts(self._connection, clock)
        news = np.union1d(counts.hive, counted.anchors.hive)
        looked = places.hive if every else news
        heard = hearing.hear(self._connection, looked, now, every=every)
        nights = anchors.new_nights(self._connection, places, heard, counts, now)
        caused = counted.with_(nights)
        inside = self._reckon(writer, places, counts, caused)
        self._finish_days(writer, places, added([counts, marked(caused.anchors)]), now, memory)
        changed = standing.update(self._connection, places, heard, inside, now)
        return Entered(changed, Memory(places, clock, max(slot, memory.looked)))

    def _reckon(self, writer: Writer, places: Places, counts: Counts, new: Caused) -> Figures:
        """Occupancy of all that counts and anchors touch; how full the hives are then."""
        touched = added([counts, marked(new.anchors)])
        if not len(touched):
            return figures(reckon(touched, new.anchors, NOBODY), NOBODY)
        hive = touched.hive[touched.firsts]
        # A whole hour, and the slots a trend looks back on.
        since = places.calendars.hour(hive, touched.slot[touched.firsts] - TREND_SLOTS + 1)
        known = slots.read_slots(self._connection, hive, since)
        corrected = anchors.since(self._connection, hive, since)
        before = slots.levels_before(self._connection, hive, known.counts, corrected)
        caused = corrected.caused.with_(new)
        every = added([known.counts, counts, marked(caused.anchors)])
        occupancy = reckon(every, caused.anchors, before)
        writer.slots(occupancy, known)
        writer.corrections(caused, occupancy.correction)

        by_hour = hours(occupancy, before, places.calendars)
        writer.hours(by_hour)
        midnight = places.calendars.midnight(hive, places.calendars.day(hive, since))
        earlier = slots.read_hours(self._connection, hive, midnight, since)
        yesterday = slots.hours_before(self._connection, hive, midnight)
        writer.days(days(joined([earlier, by_hour]), yesterday, places.calendars))
        return figures(occupancy, before)

    def _finish_days(
        self, writer: Writer, places: Places, touched: Counts, now: int, memory: Memory
    ) -> None:
        """KPIs of days that are over: that ended since all hives were looked at, or changed."""
        today = places.calendars.day(places.hive, np.full(len(places.hive), now // SLOT))
        if memory.looked >= 0 and memory.places is places:
            looked = np.full(len(places.hive), memory.looked)
            first = np.minimum(today, places.calendars.day(places.hive, looked))
        else:
            first = finishing.first_unfinished(self._connection, places.hive)
        rows = np.searchsorted(places.hive, touched.hive[touched.firsts])
        earliest = touched.slot[touched.firsts]
        first[rows] = np.minimum(first[rows], places.calendars.day(places.hive[rows], earliest))
        over = first < today
        finishing.finish(writer, places, places.hive[over], first[over], today[over])


def _same(batch: int, facts: Facts) -> list[list[int]]:
    return [[batch] * facts.states.num_rows]
