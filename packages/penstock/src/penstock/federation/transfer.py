"""A transfer of messages from a source to a destination, and its repetition after failures."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from typing import Any, Protocol

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger

_log = get_logger("penstock.federation")


class AckMode(Enum):
    ON_CONFIRM = "on-confirm"  #: when the destination has confirmed the message: none is lost
    ON_PUBLISH = "on-publish"  #: when the message is sent
    NO_ACK = "no-ack"  #: when the message arrives


@dataclass(slots=True)
class TransferMessage:
    """A message on its way, as AMQP 0-9-1 encodes it (`core.basic_properties`)."""

    route: bytes
    header: bytes
    body: bytes
    tag: Any = None  #: how the source knows it
    redelivered: bool = False


#: Called with None when the destination has confirmed a message, else with the error.
TransferOutcome = Callable[[PenstockError | None], None]
TransferFailed = Callable[[PenstockError], None]
#: Changes a message on its way; None drops it.
TransferFilter = Callable[[TransferMessage], TransferMessage | None]


class TransferSource(Protocol):
    async def open(
        self, arrived: Callable[[TransferMessage], None], failed: TransferFailed
    ) -> None:
        """Connect and consume. At most `prefetch` messages are unacknowledged."""

    @property
    def backlog(self) -> int | None:
        """The number of messages when it was opened; None if the protocol does not tell."""

    def ack(self, message: TransferMessage) -> None: ...

    async def close(self) -> None:
        """Unacknowledged messages stay at the source. Never raises."""


class TransferDestination(Protocol):
    @property
    def flowing(self) -> bool:
        """Whether it accepts messages now."""

    async def open(self, failed: TransferFailed) -> None: ...

    async def flow(self) -> None:
        """Returns when `flowing`, or when the destination has failed."""

    def send(self, message: TransferMessage, outcome: TransferOutcome) -> None: ...

    async def close(self) -> None: ...


class MessageTransfer:
    """Moves messages until a side fails, or until `limit` messages are moved."""

    def __init__(
        self,
        source: TransferSource,
        destination: TransferDestination,
        mode: AckMode,
        *,
        change: TransferFilter = lambda message: message,
        limit: int | None = None,
        limit_to_backlog: bool = False,
    ) -> None:
        self._source = source
        self._destination = destination
        self._mode = mode
        self._change = change
        self._limit = limit
        self._limit_to_backlog = limit_to_backlog
        self._arrivals: deque[TransferMessage] = deque()
        self._wake = asyncio.Event()
        self._error: PenstockError | None = None
        self._sent = 0
        self.moved = 0  #: messages that the destination has

    async def run(self, running: Callable[[], None]) -> None:
        """Calls `running` when both sides are connected. Raises the error of a side that fails."""
        try:
            await self._destination.open(self._fail)
            await self._source.open(self._arrived, self._fail)
            if self._limit_to_backlog:
                self._limit = self._source.backlog or 0
            running()
            while self._limit is None or self.moved < self._limit:
                await self._move_arrivals()
                if self._error is not None:
                    raise self._error
                if self._limit is not None and self.moved >= self._limit:
                    return
                await self._wake.wait()
                self._wake.clear()
        finally:
            await self._source.close()
            await self._destination.close()

    async def _move_arrivals(self) -> None:
        arrivals = self._arrivals
        while arrivals and self._error is None:
            if not self._destination.flowing:
                await self._destination.flow()
                continue
            if self._limit is not None and self._sent >= self._limit:
                return  # the rest stays at the source
            self._send(arrivals.popleft())

    def _send(self, message: TransferMessage) -> None:
        self._sent += 1
        changed = self._change(message)
        if changed is None:
            self._moved(message)
            return
        if self._mode is AckMode.NO_ACK:
            self._source.ack(message)
        self._destination.send(changed, partial(self._settle, message))
        if self._mode is AckMode.ON_PUBLISH:
            self._source.ack(message)

    def _settle(self, message: TransferMessage, error: PenstockError | None) -> None:
        if error is not None:
            self._fail(error)
        elif self._mode is AckMode.ON_CONFIRM:
            self._moved(message)
        else:
            self._count()

    def _moved(self, message: TransferMessage) -> None:
        self._source.ack(message)
        self._count()

    def _count(self) -> None:
        self.moved += 1
        if self._limit is not None and self.moved >= self._limit:
            self._wake.set()

    def _arrived(self, message: TransferMessage) -> None:
        self._arrivals.append(message)
        self._wake.set()

    def _fail(self, error: PenstockError) -> None:
        self._error = self._error or error
        self._wake.set()


class TransferState(Enum):
    STARTING = "starting"
    RUNNING = "running"
    TERMINATED = "terminated"  #: failed; starts again after the reconnect delay


class RecoveringTransfer:
    """Runs a transfer again, after `reconnect_delay` seconds, each time it has failed."""

    def __init__(
        self,
        what: str,
        create: Callable[[], MessageTransfer],
        reconnect_delay: float,
        finished: Callable[[], None] = lambda: None,
    ) -> None:
        """`finished` is called when a transfer with a limit is complete."""
        self.what = what
        self.state = TransferState.STARTING
        self.reason = ""  #: of the last failure
        self.since = datetime.now(UTC)
        self._create = create
        self._delay = reconnect_delay
        self._finished = finished
        self._moved = 0
        self._transfer: MessageTransfer | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def moved(self) -> int:
        return self._moved + (0 if self._transfer is None else self._transfer.moved)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def restart(self) -> None:
        await self.stop()
        self._set(TransferState.STARTING)
        self.start()

    def _set(self, state: TransferState) -> None:
        self.state = state
        self.since = datetime.now(UTC)

    def _running(self) -> None:
        self._set(TransferState.RUNNING)
        _log.info("transfer running", transfer=self.what)

    async def _run(self) -> None:
        while True:
            try:
                self._transfer = self._create()
                await self._transfer.run(self._running)
                self._finished()
                return
            except (PenstockError, OSError, TimeoutError) as error:
                self.reason = str(error) or type(error).__name__
            except asyncio.CancelledError:
                raise
            except Exception as error:  # an error in this program must not end the shovel silently
                _log.exception("transfer failed", transfer=self.what)
                self.reason = f"{type(error).__name__}: {error}"
            finally:
                if self._transfer is not None:
                    self._moved += self._transfer.moved
                    self._transfer = None
            if self.state is not TransferState.TERMINATED:
                self._set(TransferState.TERMINATED)
                _log.warning("transfer terminated", transfer=self.what, reason=self.reason)
            await asyncio.sleep(self._delay)
