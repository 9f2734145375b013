"""From all events of a subscription to how it stands: the same whatever order they came in.

Providers send events twice, late and out of order. So no event is applied to a state: the state is
read off the whole set. Its owner is who the first event that names one says; how it stands is what
the last event by the provider's own clock says. Events of one moment are ordered by what they mean,
an end after a beginning, and then by id, so that two machines never disagree.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from penstock.hives.app.payments.events import Event, Owner, Standing, Status

#: Clocks of providers have seconds: what wins when two things happened in the same one.
_RANKS: Final = {
    Status.TRIAL: 0,
    Status.ACTIVE: 1,
    Status.PAST_DUE: 2,
    Status.CANCELLED: 3,
    Status.EXPIRED: 4,
    Status.REFUNDED: 5,
}


#: What will be renewed is served a little longer than paid for: providers tell late, and that
#: is not held against who paid.
GRACE: Final = timedelta(days=1)
_RENEWED: Final = frozenset({Status.TRIAL, Status.ACTIVE, Status.PAST_DUE})


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription as its events have it."""

    owner: Owner
    standing: Standing
    event_at: datetime  #: of the event that said so

    @property
    def served_until(self) -> datetime | None:
        end = self.standing.expires_at
        if end is not None and self.standing.status in _RENEWED:
            return end + GRACE
        return end


def fold(events: Iterable[Event]) -> Subscribed | None:
    """None while nobody has said whose it is, or how it stands."""
    known = {event.id: event for event in events}
    by_time = sorted(known.values(), key=lambda event: (event.at, event.id))
    owner = next((event.owner for event in by_time if event.owner is not None), None)
    telling = [event for event in by_time if event.standing is not None]
    if owner is None or not telling:
        return None
    last = max(telling, key=_order)
    assert last.standing is not None
    return Subscribed(owner, _completed(last.standing, telling), last.at)


def _order(event: Event) -> tuple[datetime, int, str]:
    assert event.standing is not None
    return event.at, _RANKS[event.standing.status], event.id


def _completed(standing: Standing, telling: list[Event]) -> Standing:
    """What the last event leaves open, earlier ones have said: the plan, and when it began."""
    said = [event.standing for event in telling if event.standing is not None]
    started = [each.started_at for each in said if each.started_at is not None]
    plans = [each.plan for each in said if each.plan is not None]
    return Standing(
        standing.status,
        standing.plan or (plans[-1] if plans else None),
        min(started) if started else None,
        standing.renews_at,
        standing.cancelled_at,
        standing.expires_at,
    )
