"""Queues: a driver that keeps messages in order until somebody is done with them.

The short way: when nothing waits and a consumer has credit, a message goes straight through, and
is never stored unless it must survive. Otherwise it waits (`holding.py`). Who is served next is
`consumers.py`, what the queue's arguments ask for is `limits.py`, how long an answer may take is
`patience.py`, how long the queue may go unused `disuse.py`, what becomes of the dead is
`deadletter.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.contract import EXPIRES, PERSISTENT, Channel, Delivery, Fragment, Message
from penstock.broker.destinations import LOGGED, REFUSED, TAKEN, Binding
from penstock.broker.paths import folder
from penstock.broker.sending import Sending
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.drivers.consumers import Consumers
from penstock.drivers.deadletter import DeadLetters
from penstock.drivers.description import describe_queue
from penstock.drivers.disuse import Disuse
from penstock.drivers.holding import Holding
from penstock.drivers.limits import Limits
from penstock.drivers.patience import Patience

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost


class Reader:
    """The queue's side of a consumer's channel."""

    __slots__ = ("pull", "sending")

    def __init__(self, pull: bool) -> None:
        self.pull = pull  #: `basic.get`: takes one message and is no consumer
        self.sending: Sending | None = None  #: a large message, half forwarded


class Queue:
    kind = "queue"

    def __init__(
        self,
        vhost: VirtualHost,
        name: str,
        *,
        type: str,  # noqa: A002 - the protocol's word
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: dict[str, Any],
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.type = type
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.arguments = arguments
        self.kernel = vhost.kernel
        self.limits = Limits.of(arguments)
        self.consumers = Consumers(self.limits.single_active)
        self.unanswered = 0  #: messages that were delivered and not yet confirmed or failed
        self.deleted = False
        #: The next active consumer is not served yet: what the last one holds may come back.
        self._handing_over = False
        self._dead_letters = DeadLetters(vhost, name, self.limits)
        timeout = self.limits.consumer_timeout
        self._patience = None if timeout is None else Patience(self.kernel, timeout)
        self._disuse = Disuse(self.kernel, self.limits.expires, self._die)
        kept = self.kernel.directory / "queues" / folder(vhost.name) / folder(name)
        self._holding = Holding(
            self.kernel,
            kept if durable and owner is None else None,
            self.limits,
            expired=self._bury_expired,
            recovered=self._drain,
        )
        self.used()

    # The contract.

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        if arguments.get("post"):  # a publisher, and no consumer
            self.vhost.exchanges[""].channel_open(channel, {})
            return
        reader = Reader(bool(arguments.get("pull")))
        if not reader.pull:
            priority = arguments.get("x-priority", 0)
            if type(priority) is not int:
                raise PreconditionFailed(f"invalid arg 'x-priority': {priority!r} is no integer")
            where = f"queue '{self.name}' in vhost '{self.vhost.name}'"
            self.consumers.add(channel, priority, bool(arguments.get("exclusive")), where)
        channel.state = reader
        self.used()

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        """Messages reach a queue through an exchange; the default one knows it by its name."""
        self.vhost.exchanges[""].channel_post(channel, fragment, receipt)

    def channel_request(self, channel: Channel, credit: int) -> None:
        channel.credit = credit
        reader: Reader = channel.state
        if reader.sending is not None:
            if credit > 0:
                reader.sending.draw()
        elif reader.pull:
            self._pull(channel)
        elif credit > 0:
            if not self._handing_over:
                self.consumers.ready(channel)
                if self._holding.ready:
                    self._drain()
        else:
            self.consumers.pause(channel)

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        self.unanswered -= 1
        if self._patience is not None:
            self._patience.answered(delivery)
        if delivery.offset >= 0:
            self._holding.done(delivery)
        if not self.unanswered and self._handing_over:
            self._hand_over()

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        self.unanswered -= 1
        if self._patience is not None:
            self._patience.answered(delivery)
        if self.deleted:
            return
        limit = self.limits.delivery_limit
        if requeue and limit is not None and delivery.count >= limit:
            self._bury(delivery, "delivery_limit")
        elif requeue:
            delivery.count += 1
            self._holding.give_back(delivery)
            self._drain()
            if self.limits.bounded and not self.limits.reject:
                self._drop_heads()
        else:
            self._bury(delivery, "rejected")
        if not self.unanswered and self._handing_over:
            self._hand_over()

    def channel_close(self, channel: Channel) -> None:
        reader = channel.state
        if not isinstance(reader, Reader):
            self.vhost.exchanges[""].channel_close(channel)
            return
        if reader.sending is not None:
            reader.sending.cancel()
            reader.sending = None
        if reader.pull or self.deleted:
            return
        successor = self.consumers.remove(channel)
        if successor is not None:
            self._handing_over = self.unanswered > 0
            if not self._handing_over:
                self._hand_over()
        elif not self.consumers:
            self._handing_over = False
        self.used()
        if self.auto_delete and not self.consumers:
            self.vhost.delete_queue(self.name)

    def _hand_over(self) -> None:
        """Serve the next active consumer: all that the last one held is answered or here again."""
        self._handing_over = False
        active = self.consumers.active
        if active is not None and active.credit > 0:
            self.consumers.ready(active)
            self._drain()

    # In.

    def push(self, message: Message) -> int:
        holding = self._holding
        channel = None if holding.ready else self.consumers.take()
        if channel is None:
            outcome = self._enqueue(message)
            if self._handing_over:  # as RabbitMQ, which serves consumers when something comes
                self._hand_over()
            return outcome
        if channel.settled:
            if message.spool is None:
                channel.terminal.channel_forward(channel, message, None)
            else:
                self._forward(channel, Delivery(message, holding.position))
            return TAKEN
        delivery = Delivery(message, holding.position)
        holding.position += 1
        self.unanswered += 1
        if holding.ages or message.flags & EXPIRES:  # should it come back, its time goes on
            delivery.expires = holding.expiry(message)
        outcome = TAKEN
        if message.flags & PERSISTENT and holding.log is not None:
            delivery.offset = holding.log.append(message)
            outcome = LOGGED
        if self._patience is not None:
            self._patience.delivered(channel, delivery)
        if message.spool is None:
            channel.terminal.channel_forward(channel, message, delivery)
        else:
            self._forward(channel, delivery)
        return outcome

    def _enqueue(self, message: Message) -> int:
        limits = self.limits
        if not limits.bounded:
            return self._holding.add(message)
        holding = self._holding
        if limits.reject and limits.exceeded(holding.ready + 1, holding.ready_bytes + message.size):
            if limits.dead_letter_rejects:
                self._dead_letters.send(message, "maxlen")
            return REFUSED
        outcome = holding.add(message)
        self._drop_heads()
        return outcome

    def _drop_heads(self) -> None:
        """Until no more waits than may."""
        holding = self._holding
        while holding.ready and self.limits.exceeded(holding.ready, holding.ready_bytes):
            delivery = holding.pop()
            if delivery is None:
                return
            self._bury(delivery, "maxlen")

    # Out.

    def _drain(self) -> None:
        """Deliver while there is something to deliver and somebody to take it."""
        holding, consumers = self._holding, self.consumers
        while holding.ready and consumers.waiting:
            delivery = holding.pop()
            if delivery is None:
                return
            if delivery.expires and delivery.expires <= self.kernel.loop.time():
                self._bury_expired(delivery)
                continue
            channel = consumers.take()
            assert channel is not None, "one was waiting a moment ago"
            self._deliver(channel, delivery)
        holding.watch()

    def _pull(self, channel: Channel) -> None:
        """Deliver one, if there is one."""
        holding = self._holding
        while holding.ready and (delivery := holding.pop()) is not None:
            if delivery.expires and delivery.expires <= self.kernel.loop.time():
                self._bury_expired(delivery)
                continue
            channel.credit = 0
            self._deliver(channel, delivery)
            break
        holding.watch()

    def _deliver(self, channel: Channel, delivery: Delivery) -> None:
        if delivery.message.spool is None:
            channel.terminal.channel_forward(channel, delivery.message, delivery)
        else:
            self._forward(channel, delivery)
        if not channel.settled:
            self.unanswered += 1
            if self._patience is not None:
                self._patience.delivered(channel, delivery)
        elif delivery.offset >= 0:
            self._holding.done(delivery)

    def _forward(self, channel: Channel, delivery: Delivery) -> None:
        """A large message, fragment by fragment, as the terminal draws them."""
        reader: Reader = channel.state
        if not reader.pull:
            self.consumers.pause(channel)

        def finished() -> None:
            reader.sending = None
            if not reader.pull and channel.credit > 0 and not self.deleted:
                self.consumers.ready(channel)
                self._drain()

        reader.sending = Sending(self.kernel, channel, delivery, finished)
        reader.sending.open()

    def _bury(self, delivery: Delivery, reason: str) -> None:
        """Dead-letter a message, or drop it, and be done with it."""
        outcome = self._dead_letters.send(delivery.message, reason)
        if delivery.offset < 0:
            return
        if outcome & LOGGED:  # it may not be in neither log, even if the power fails
            self.kernel.committer.after(lambda: self._holding.done(delivery))
        else:
            self._holding.done(delivery)

    def _bury_expired(self, delivery: Delivery) -> None:
        self.kernel.metrics.expired += 1
        self._bury(delivery, "expired")

    # Life.

    def used(self) -> None:
        """Somebody showed an interest: an unused queue may have a time to live."""
        self._disuse.used(still=len(self.consumers) > 0)

    def _die(self) -> None:
        self.vhost.delete_queue(self.name)

    def bound(self, binding: Binding) -> None:
        """Exchanges know where their bindings lead; it makes no difference here."""

    unbound = bound

    def close(self) -> None:
        self._stop()
        self._holding.close()

    def delete(self) -> None:
        self.deleted = True
        why = NotFound(f"queue '{self.name}' in vhost '{self.vhost.name}' was deleted")
        for channel in self.consumers:
            reader: Reader = channel.state
            if reader.sending is not None:
                reader.sending.cancel()
            channel.terminal.channel_failure(channel, 0, why)
        self._stop()
        self._holding.delete()
        self.owner = None  # which may have gone, and is not to wait for us

    def _stop(self) -> None:
        self._disuse.close()
        if self._patience is not None:
            self._patience.close()

    # Management.

    @property
    def ready(self) -> int:
        """How many messages wait."""
        return self._holding.ready

    @property
    def ready_bytes(self) -> int:
        return self._holding.ready_bytes

    @property
    def memory(self) -> int:
        return self._holding.memory

    @property
    def message_count(self) -> int:
        return self._holding.ready

    @property
    def consumer_count(self) -> int:
        return len(self.consumers)

    def purge(self) -> int:
        holding = self._holding
        purged = holding.ready
        if not self.unanswered:
            holding.clear()
        while holding.ready and (delivery := holding.pop()) is not None:
            if delivery.offset >= 0:
                holding.done(delivery)
        return purged

    def describe(self) -> dict[str, Any]:
        return describe_queue(self)
