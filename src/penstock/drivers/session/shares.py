"""All the shares of a session: it takes from their queues while it could deliver at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.destinations import Queue
from penstock.broker.sessions import Grant, Letter, Subscription
from penstock.drivers.session.grants import AS_PUBLISHED, Grants
from penstock.drivers.session.share import Share

if TYPE_CHECKING:
    from penstock.drivers.holding import Holding
    from penstock.drivers.session.session import Session


class Shares:
    __slots__ = ("_by_queue", "_session")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._by_queue: dict[str, Share] = {}

    def __len__(self) -> int:
        return len(self._by_queue)

    def join(self, queue: Queue, subscription: Subscription) -> None:
        self.leave(queue.name)
        self._by_queue[queue.name] = Share(self._session, queue, subscription)

    def leave(self, queue: str) -> None:
        share = self._by_queue.pop(queue, None)
        if share is not None:
            share.close()

    def leave_all(self) -> None:
        for queue in list(self._by_queue):
            self.leave(queue)

    def lost(self, queue: str) -> None:
        """A group's queue is gone."""
        self._by_queue.pop(queue, None)

    def draw(self, taking: bool) -> None:
        """The session can deliver at once, or cannot."""
        for share in list(self._by_queue.values()):
            share.draw(taking)

    def grant(self, route: bytes) -> Grant:
        """What the shares together say of a topic."""
        wanted = Grants()
        for share in self._by_queue.values():
            wanted.add(share.subscription)
        grant = wanted.of(route)
        return grant if grant.qos >= 0 else AS_PUBLISHED

    def hand_back(self, holding: Holding) -> None:
        """What was taken as a share and never answered is another member's to receive."""
        queues = {id(share.grant): share.queue for share in self._by_queue.values()}
        while queues and holding.ready:
            delivery = holding.pop()
            if delivery is None:
                return
            if isinstance(delivery, Letter) and delivery.qos == 1:
                queue = queues.get(id(delivery.grant))
                if queue is not None:
                    queue.push(delivery.message)
