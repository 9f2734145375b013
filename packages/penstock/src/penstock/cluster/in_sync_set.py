"""The in-sync set: the members that have every message that was confirmed as in-sync.

A waiter is confirmed when every member of the set has acknowledged its sequence. A member joins
when it has everything, and counts from before the change is recorded. A member that does not
acknowledge in time leaves, and counts until the change is recorded. So whoever the record names can
lead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from penstock.broker.log.observer import CommitWaiters
from penstock.core.logs import get_logger

_log = get_logger("penstock.cluster")

#: Records the set; returns whether this member still leads. Raises OSError if it cannot say.
RecordInSync = Callable[[frozenset[str]], Awaitable[bool]]


class InSyncSet:
    def __init__(
        self,
        node: str,
        members: Iterable[str],
        *,
        record: RecordInSync,
        report: Callable[[Exception], None],
        min_in_sync: int,
        timeout: float,
        now: Callable[[], float],
    ) -> None:
        self.node = node
        self.members = frozenset(members) | {node}  #: as recorded
        self._record = record
        self._report = report
        self._min = min_in_sync
        self._timeout = timeout
        self._now = now
        #: Members to be, and the sequence that they must have first.
        self._joining: dict[str, int] = {}
        self._uncertain: frozenset[str] = frozenset()  # whose record may or may not have succeeded
        self._acked: dict[str, int] = {}
        self._healthy_at = dict.fromkeys(self.members, now())
        self._waiting: deque[tuple[int, CommitWaiters]] = deque()
        self.on_released: Callable[[], None] = lambda: None  #: waiters were confirmed
        self._synced = 0  # the last sequence on the local disk

    def start(self) -> None:
        """Members can connect from now on: the time that recovery took does not count."""
        self._healthy_at = dict.fromkeys(self.members, self._now())

    @property
    def is_too_small(self) -> bool:
        return len(self.members) < self._min

    @property
    def committed(self) -> int:
        """The last sequence that all members have."""
        others = (self.members | self._uncertain | self._joining.keys()) - {self.node}
        return min([self._synced, *(self._acked.get(node, -1) for node in others)])

    def wait(self, sequence: int, waiters: CommitWaiters) -> None:
        """The sequence is on the local disk. Receipts of one channel are confirmed in order."""
        self._synced = max(self._synced, sequence)
        if waiters.local:
            behind = {channel for channel, _ in waiters.receipts}
            for _, others in self._waiting:
                behind.update(channel for channel, _ in others.receipts)
            now = CommitWaiters()
            now.local = [one for one in waiters.local if one[0] not in behind]
            waiters.local = [one for one in waiters.local if one[0] in behind]
            now.confirm(self._report)
        if waiters:
            self._waiting.append((sequence, waiters))
        self.release()

    def acknowledged(self, node: str, sequence: int) -> None:
        self._acked[node] = sequence
        self.release()

    def healthy(self, node: str) -> None:
        """The member has everything that it should have by now."""
        self._healthy_at[node] = self._now()

    def give_up(self, node: str) -> None:
        """The member will not return: it leaves with the next update."""
        self._healthy_at.pop(node, None)

    def release(self) -> None:
        """Confirm every waiter whose sequence all members have."""
        if not self._waiting or self.is_too_small:
            return
        committed = self.committed
        released = False
        while self._waiting and self._waiting[0][0] <= committed:
            _, waiters = self._waiting.popleft()
            waiters.confirm(self._report)
            released = True
        if released:
            self.on_released()

    def fail(self, cause: OSError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, waiters in waiting:
            waiters.fail(self._report, cause)

    async def update(self, candidates: Iterable[str]) -> bool:
        """Add members that caught up (`candidates`), remove those that were silent too long;
        returns False if this member no longer leads."""
        limit = self._now() - self._timeout
        silent = {
            node
            for node in self.members - {self.node}
            if self._healthy_at.get(node, limit) <= limit
        }
        # A candidate counts from now on. It is recorded when it has all that was confirmed before.
        wanted = set(candidates) - self.members
        for node in self._joining.keys() - wanted:
            del self._joining[node]
        for node in wanted:
            self._joining.setdefault(node, self._synced)
        ready = {node for node in wanted if self._acked.get(node, -1) >= self._joining[node]}
        self.release()
        if not silent and not ready and not self._uncertain:
            return True
        members = self.members - silent | ready
        self._uncertain |= ready
        try:
            if not await self._record(members):
                return False
        except OSError as error:  # what was recorded is unknown: everybody counts
            _log.warning("in-sync set not recorded", error=str(error))
            return True
        for node in ready:
            self._healthy_at[node] = self._now()
            self._joining.pop(node, None)
        if members != self.members:
            _log.info("in-sync set changed", members=sorted(members), left=sorted(silent))
        self.members, self._uncertain = members, frozenset()
        self.release()
        return True
