"""A session: the queue of one subscriber, from its first subscription until it expires.

It decides for itself what a message is granted (`grants.py`). What need not arrive goes straight
to the client, if there is one that can take it. What must arrive becomes a numbered letter; no more
are out than the client allows, the rest wait (`drivers/holding.py`) and survive the broker if the
session does. When the client goes, its unanswered letters wait again with the numbers they have.

The number of a logged letter is its offset in the log, folded: after a restart the same message
has the same number, and nothing has to be written to know it. What exactly-once delivery needs
beyond that is `once.py`, what comes from retained messages is drawn as the client takes it, and
`share.py` is the session's part in shared subscriptions.
"""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import (
    EXPIRES,
    ONCE,
    PERSISTENT,
    Channel,
    Delivery,
    Fragment,
    Message,
)
from penstock.broker.destinations import LOGGED, TAKEN, Binding, Queue
from penstock.broker.paths import folder
from penstock.broker.sending import Sending
from penstock.broker.sessions import NUMBERS, Grant, Letter, Subscription
from penstock.core.errors import NotFound, ResourceLocked
from penstock.drivers.holding import Holding
from penstock.drivers.limits import Limits
from penstock.drivers.session.grants import AS_PUBLISHED, Grants, grant_of
from penstock.drivers.session.once import Once
from penstock.drivers.session.share import Share

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost

_NO_LIMITS: Final = Limits()
#: Stands for what the client has already: only its number is still spoken of.
_FORGOTTEN: Final = Message(b"", b"", b"")


class Session:
    kind = "queue"
    auto_delete = False
    owner: object | None = None

    __slots__ = (
        "_channel",
        "_directory",
        "_grants",
        "_holding",
        "_number",
        "_once",
        "_recalls",
        "_sending",
        "_shares",
        "_taking",
        "_window",
        "arguments",
        "deleted",
        "dropped",
        "durable",
        "kernel",
        "letters",
        "mine",
        "name",
        "spurns_own",
        "type",
        "vhost",
    )

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
        self.arguments = arguments
        self.kernel = vhost.kernel
        self.letters: dict[int, Letter] = {}
        self.spurns_own = False
        self.mine: Message | None = None
        self.dropped = 0  #: messages there was no room for
        self.deleted = False
        self._grants = Grants()
        self._channel: Channel | None = None
        self._taking: Channel | None = None  #: the channel, when a message may go straight to it
        self._window = 0  #: how many letters may be out
        self._number = 0  #: the last number given to a letter that is not logged
        self._holding: Holding | None = None
        self._once: Once | None = None
        self._recalls: deque[tuple[Iterator[bytes], Grant]] | None = None
        self._shares: dict[str, Share] | None = None
        self._sending: Sending | None = None
        self._directory = self.kernel.directory / "queues" / folder(vhost.name) / folder(name)
        if durable and self._directory.exists():
            self._recover()

    # The contract.

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        if not arguments.get("post"):
            raise ResourceLocked(
                f"queue '{self.name}' in vhost '{self.vhost.name}' is the session of an MQTT "
                "client, which alone reads from it"
            )
        self.vhost.exchanges[""].channel_open(channel, {})

    def attach(self, channel: Channel, window: int) -> None:
        self._channel = channel
        self._window = min(window, NUMBERS)
        channel.state = self
        for letter in list(self.letters.values()):  # the client has them, and may forget
            channel.terminal.channel_forward(channel, letter.message, letter)

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        """Messages reach a session through an exchange; the default one knows it by its name."""
        self.vhost.exchanges[""].channel_post(channel, fragment, receipt)

    def channel_request(self, channel: Channel, credit: int) -> None:
        channel.credit = credit
        if channel is not self._channel:
            return
        if self._sending is not None:
            if credit > 0:
                self._sending.draw()
        elif credit > 0:
            self._drain()
        else:
            self._look()

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        assert isinstance(delivery, Letter)
        if delivery.qos == 2 and not delivery.released:
            delivery.released = True
            if self.durable:  # the message itself is not needed any more, but its number is
                self.once.release(delivery.offset)
            if delivery.offset >= 0:
                self._hold().done(delivery)
            return
        self._finish(delivery)

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        """The client will not have it, and another would be no better."""
        assert isinstance(delivery, Letter)
        self._finish(delivery)
        if self._sending is not None and self._sending.delivery is delivery:
            self._sending.cancel()
            self._sending = None

    def channel_close(self, channel: Channel) -> None:
        if channel.state is not self:
            self.vhost.exchanges[""].channel_close(channel)
            return
        if channel is not self._channel:
            return
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        self._channel = None
        self._look()
        for number, letter in list(self.letters.items()):
            if not letter.released:
                del self.letters[number]
                letter.count += 1
                letter.expires = 0.0  # it was begun, and is to be brought to an end
                self._hold().give_back(letter)

    # In.

    def push(self, message: Message) -> int:
        grants = self._grants
        grant = grants.only or grants.of(message.route)
        channel = self._taking
        if channel is not None and grant.plain and not self.spurns_own:  # the short way
            if not message.flags & PERSISTENT and grant.qos >= 0 and message.spool is None:
                channel.terminal.channel_forward(channel, message, None)
                return TAKEN
        elif self.spurns_own and message is self.mine:
            grant = grants.of_own(message.route)
        return self.take(message, grant)

    def take(self, message: Message, grant: Grant) -> int:
        """A message that was granted so much."""
        channel = self._taking
        if message.flags & PERSISTENT and grant.qos > 0:
            return self._promise(message, grant, channel)
        if grant.qos < 0:
            return TAKEN
        if channel is not None and message.spool is None:
            letter = None if grant.plain else Letter(message, 0, grant, 0)
            channel.terminal.channel_forward(channel, message, letter)
            return TAKEN
        return self._wait_if_convenient(message)

    def _promise(self, message: Message, grant: Grant, channel: Channel | None) -> int:
        """It must arrive: now, if the client can take it."""
        holding = self._holding or self._hold()
        letters = self.letters
        if channel is None or len(letters) >= self._window or message.spool is not None:
            return self._wait(message)
        log = holding.log
        number = self._next_number() if log is None else log.log.next_offset % NUMBERS + 1
        if number in letters:
            return self._wait(message)
        letter = Letter(message, holding.position, grant, _qos(message, grant))
        holding.position += 1
        letter.number = number
        if message.flags & EXPIRES:
            letter.expires = holding.expiry(message)
        outcome = TAKEN
        if log is not None:
            letter.offset = log.append(message)
            outcome = LOGGED
        letters[number] = letter
        channel.terminal.channel_forward(channel, message, letter)
        if self._shares and len(letters) >= self._window:
            self.share_out()
        return outcome

    def _wait(self, message: Message) -> int:
        holding = self._hold()
        outcome = holding.add(message)
        most = self.kernel.settings.mqtt.max_queued
        while most and holding.ready > most and (oldest := holding.pop()) is not None:
            self._drop(oldest)
        self._taking = None
        self._drain()
        return outcome

    def _wait_if_convenient(self, message: Message) -> int:
        """It need not arrive, but a client that is only slow may still want it."""
        holding = self._hold() if self._channel is not None else self._holding
        if holding is None or self._channel is None:
            return TAKEN
        settings = self.kernel.settings
        full = settings.mqtt.max_queued and holding.ready >= settings.mqtt.max_queued
        if full or holding.memory > settings.queue_memory_bytes:
            self.dropped += 1
            self.kernel.metrics.dropped += 1
            return TAKEN
        if message.flags & PERSISTENT:  # but not for this subscriber
            spool = message.spool
            message = Message(message.route, message.header, message.body, message.flags & ~1)
            message.spool = spool
        return self._wait(message)

    def _drop(self, delivery: Delivery) -> None:
        self.dropped += 1
        self.kernel.metrics.dropped += 1
        if delivery.offset >= 0:
            self._hold().done(delivery)

    # Out.

    def _drain(self) -> None:
        """Deliver what waits while the client can take it."""
        channel = self._channel
        if channel is not None:
            while channel.credit > 0 and self._sending is None and self._deliver_next(channel):
                pass
        self._look()

    def _deliver_next(self, channel: Channel) -> bool:
        if len(self.letters) >= self._window:
            return False
        holding = self._holding
        if self._recalls and not (holding is not None and holding.returned):
            return self._recall_next(channel, self._recalls)
        if holding is None or not holding.ready:
            return False
        delivery = holding.pop()
        return delivery is not None and self._deliver(channel, holding, delivery)

    def _deliver(self, channel: Channel, holding: Holding, delivery: Delivery) -> bool:
        if delivery.expires and delivery.expires <= self.kernel.loop.time():
            self._expired(delivery)
            return True
        letter = delivery if isinstance(delivery, Letter) else self._letter(delivery)
        if letter.qos:
            if not letter.number:
                logged = holding.log is not None and letter.offset >= 0
                letter.number = letter.offset % NUMBERS + 1 if logged else self._next_number()
            if letter.number in self.letters:  # the one that has it is not answered yet
                holding.give_back(letter)
                return False
            self.letters[letter.number] = letter
        if letter.message.spool is not None and not letter.released:
            self._sending = Sending(self.kernel, channel, letter, self._sent)
            self._sending.open()
        else:
            plain = not letter.qos and letter.grant.plain and not letter.expires
            channel.terminal.channel_forward(channel, letter.message, None if plain else letter)
        if not letter.qos and letter.offset >= 0:
            holding.done(letter)
        return True

    def _letter(self, delivery: Delivery) -> Letter:
        """What comes from where it waited, as it is to be delivered today."""
        message = delivery.message
        grant = self._grants.of(message.route)
        if grant.qos < 0:
            grant = self._shared_grant(message.route)
        letter = Letter(message, delivery.position, grant, _qos(message, grant))
        letter.offset = delivery.offset
        letter.count = delivery.count
        letter.expires = delivery.expires
        return letter

    def _sent(self) -> None:
        """A large message has left whole."""
        self._sending = None
        self._drain()

    def _next_number(self) -> int:
        number = self._number % NUMBERS + 1
        while number in self.letters:
            number = number % NUMBERS + 1
        self._number = number
        return number

    def _look(self) -> None:
        """Whether the next message may go straight to the client."""
        channel = self._channel
        behind = self._sending is not None or self._recalls or self.message_count
        self._taking = None if channel is None or channel.credit <= 0 or behind else channel
        if self._shares:
            self.share_out()

    def _finish(self, letter: Letter) -> None:
        self.letters.pop(letter.number, None)
        if letter.offset >= 0 and not self.deleted:
            if not letter.released:
                self._hold().done(letter)
            elif self.durable:
                self.once.complete(letter.offset)
        if self._shares:
            self.share_out()

    def _expired(self, delivery: Delivery) -> None:
        self.kernel.metrics.expired += 1
        if delivery.offset >= 0:
            self._hold().done(delivery)

    # What is kept for those who come later.

    def recall(self, keys: list[bytes], subscription: Subscription) -> None:
        if self._recalls is None:
            self._recalls = deque()
        self._recalls.append((iter(keys), grant_of([subscription])))
        self._drain()

    def _recall_next(self, channel: Channel, recalls: deque[tuple[Iterator[bytes], Grant]]) -> bool:
        """The next one, as it is now: what was kept may have been replaced since."""
        keys, grant = recalls[0]
        key = next(keys, None)
        if key is None:
            recalls.popleft()
            if not recalls:
                self._recalls = None
            return True
        message = self.vhost.retained.get(key)
        if message is None:
            return True
        holding = self._hold()
        letter = Letter(message, holding.position, grant, _qos(message, grant))
        if letter.qos and holding.paged:  # its record would be read back with those around it
            holding.add(message)
            return True
        holding.position += 1
        if message.flags & EXPIRES:
            letter.expires = holding.expiry(message)
        if letter.qos and holding.log is not None:
            letter.offset = holding.log.append(message)
        return self._deliver(channel, holding, letter)

    # Shares.

    def join(self, queue: Queue, subscription: Subscription) -> None:
        if self._shares is None:
            self._shares = {}
        self.leave(queue.name)
        self._shares[queue.name] = Share(self, queue, subscription)
        self.share_out()

    def leave(self, queue: str) -> None:
        share = self._shares.pop(queue, None) if self._shares else None
        if share is not None:
            share.close()

    def lost(self, queue: str) -> None:
        """A group's queue is gone."""
        if self._shares:
            self._shares.pop(queue, None)

    def share_out(self) -> None:
        taking = self._taking is not None and len(self.letters) < self._window
        for share in list((self._shares or {}).values()):
            share.draw(taking)

    def _shared_grant(self, route: bytes) -> Grant:
        shares = (self._shares or {}).values()
        wanted = Grants()
        for share in shares:
            wanted.add(share.subscription)
        grant = wanted.of(route)
        return grant if grant.qos >= 0 else AS_PUBLISHED

    def _hand_back(self) -> None:
        """What was taken as a share and never answered is another member's to receive."""
        holding = self._holding
        queues = {id(share.grant): share.queue for share in (self._shares or {}).values()}
        while queues and holding is not None and holding.ready:
            delivery = holding.pop()
            if delivery is None:
                return
            if isinstance(delivery, Letter) and delivery.qos == 1:
                queue = queues.get(id(delivery.grant))
                if queue is not None:
                    queue.push(delivery.message)

    # Exactly once.

    @property
    def once(self) -> Once:
        if self._once is None:
            path = self._directory / "once" if self.durable else None
            self._once = Once(self.kernel, path)
        return self._once

    @property
    def received(self) -> set[int]:
        return self.once.received

    def remember(self, number: int) -> None:
        self.once.remember(number)

    def forget(self, number: int) -> None:
        self.once.forget(number)

    # Life.

    def _hold(self) -> Holding:
        if self._holding is None:
            self._holding = Holding(
                self.kernel,
                self._directory if self.durable else None,
                _NO_LIMITS,
                expired=self._expired,
                recovered=self._drain,
                settled=self.once.released if self.durable else (),
            )
        return self._holding

    def _recover(self) -> None:
        """What was in the middle of being delivered once goes on where it was."""
        self._hold()
        for offset in sorted(self.once.released):
            letter = Letter(_FORGOTTEN, 0, AS_PUBLISHED, 2)
            letter.offset = offset
            letter.number = offset % NUMBERS + 1
            letter.released = True
            self.letters[letter.number] = letter

    @property
    def subscription_count(self) -> int:
        return len(self._grants.subscriptions) + len(self._shares or ())

    def subscription(self, pattern: str) -> Subscription | None:
        return self._grants.subscriptions.get(pattern)

    def bound(self, binding: Binding) -> None:
        self._grants.add(Subscription.of(binding.key, binding.arguments))
        self.spurns_own = self._grants.spurn_own

    def unbound(self, binding: Binding) -> None:
        self._grants.remove(Subscription.of(binding.key, binding.arguments))
        self.spurns_own = self._grants.spurn_own

    def used(self) -> None:
        """How long a session may go unused is its client's to say."""

    def close(self) -> None:
        if self._holding is not None:
            self._holding.close()
        if self._once is not None:
            self._once.close()

    def delete(self) -> None:
        self.deleted = True
        channel = self._channel
        if channel is not None:
            self.channel_close(channel)
            why = NotFound(f"session '{self.name}' in vhost '{self.vhost.name}' was deleted")
            channel.terminal.channel_failure(channel, 0, why)
        self._hand_back()
        for queue in list(self._shares or ()):
            self.leave(queue)
        self.letters.clear()
        if self._once is not None:
            self._once.delete()
        if self._holding is not None:
            self._holding.delete()
        if self.durable:
            shutil.rmtree(self._directory, ignore_errors=True)

    # Management.

    @property
    def message_count(self) -> int:
        return self._holding.ready if self._holding is not None else 0

    @property
    def consumer_count(self) -> int:
        return int(self._channel is not None)

    def purge(self) -> int:
        holding = self._holding
        purged = 0
        while holding is not None and holding.ready and (found := holding.pop()) is not None:
            purged += 1
            if found.offset >= 0:
                holding.done(found)
        return purged

    def describe(self) -> dict[str, Any]:
        holding = self._holding
        ready = self.message_count
        return {
            "name": self.name,
            "vhost": self.vhost.name,
            "type": self.type,
            "durable": self.durable,
            "auto_delete": False,
            "exclusive": True,
            "arguments": self.arguments,
            "state": "running",
            "messages_ready": ready,
            "messages_unacknowledged": len(self.letters),
            "messages": ready + len(self.letters),
            "message_bytes_ready": holding.ready_bytes if holding is not None else 0,
            "memory": holding.memory if holding is not None else 0,
            "consumers": self.consumer_count,
            "single_active_consumer_tag": None,
        }


def _qos(message: Message, grant: Grant) -> int:
    if not message.flags & PERSISTENT:
        return 0
    published = 2 if message.flags & ONCE else 1
    return min(published, grant.qos)
