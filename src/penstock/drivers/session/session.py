"""A session: the queue of one subscriber, from its first subscription until it expires.

It decides for itself what a message is granted (`grants.py`). What need not arrive goes straight
to the client, if there is one that can take it. What must arrive becomes a numbered letter; no more
are out than the client allows, the rest wait (`drivers/holding.py`) and survive the broker if the
session does. When the client goes, its unanswered letters wait again with the numbers they have.

The number of a logged letter is its offset in the log, folded: after a restart the same message
has the same number, and nothing has to be written to know it. What exactly-once delivery needs
beyond that is `once.py`; what is drawn as the client takes it are retained messages (`recalls.py`)
and its part in shared subscriptions (`shares.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import (
    EXPIRES,
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
from penstock.drivers.session.contents import Contents
from penstock.drivers.session.description import describe
from penstock.drivers.session.grants import AS_PUBLISHED
from penstock.drivers.session.letters import letter_of, number_of, qos_of, released
from penstock.drivers.session.once import Once
from penstock.drivers.session.recalls import Recalls
from penstock.drivers.session.shares import Shares
from penstock.drivers.session.subscriptions import Subscriptions
from penstock.drivers.session.waiting import Waiting

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost


#: How many messages are delivered between two looks at the clock.
DELIVERIES: Final = 64


class Session:
    kind = "queue"
    auto_delete = False
    owner: object | None = None

    __slots__ = (
        "_channel",
        "_contents",
        "_draining_later",
        "_grants",
        "_number",
        "_once",
        "_recalls",
        "_sending",
        "_shares",
        "_subscriptions",
        "_taking",
        "_waiting",
        "_window",
        "arguments",
        "deleted",
        "directory",
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
        self.deleted = False
        self._subscriptions = Subscriptions()
        # The same at hand: every message asks.
        self._grants = self._subscriptions.grants
        self._contents: Contents | None = None
        self._channel: Channel | None = None
        self._taking: Channel | None = None  #: the channel, when a message may go straight to it
        self._window = 0  #: how many letters may be out
        self._number = 0  #: the last number given to a letter that is not logged
        self._waiting = Waiting(self)
        self._once: Once | None = None
        self._recalls: Recalls | None = None
        self._shares: Shares | None = None
        self._sending: Sending | None = None
        self._draining_later = False  #: the turn was over: it goes on in another
        self.directory = self.kernel.directory / "queues" / folder(vhost.name) / folder(name)
        if durable and self.directory.exists():
            self._waiting.hold()
            for letter in released(self.once.released):
                self.letters[letter.number] = letter

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
            self.drain()
        else:
            self._look()

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        assert isinstance(delivery, Letter)
        if delivery.qos == 2 and not delivery.released:
            delivery.released = True
            if self.durable:  # the message itself is not needed any more, but its number is
                self.once.release(delivery.offset)
            if delivery.offset >= 0:
                self._waiting.hold().done(delivery)
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
                self._waiting.hold().give_back(letter)

    # In.

    def push(self, message: Message) -> int:
        if self._contents is not None and self._contents.brings(message.route):
            grant = self._contents.grant(message, own=message is self.mine)
            return self.take(self._contents.addressed(message), grant)
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
        holding = self._waiting.holding or self._waiting.hold()
        letters = self.letters
        if channel is None or len(letters) >= self._window or message.spool is not None:
            return self._wait(message)
        log = holding.log
        number = self._next_number() if log is None else log.log.next_offset % NUMBERS + 1
        if number in letters:
            return self._wait(message)
        letter = Letter(message, holding.position, grant, qos_of(message, grant))
        holding.position += 1
        letter.number = number
        if message.flags & EXPIRES:
            letter.expires = holding.expiry(message)
        outcome = TAKEN
        if log is not None:
            letter.offset = log.append(message)
            log.acks.mark_sent(letter.offset)
            outcome = LOGGED
        letters[number] = letter
        channel.terminal.channel_forward(channel, message, letter)
        if self._shares and len(letters) >= self._window:
            self.share_out()
        return outcome

    def _wait(self, message: Message) -> int:
        outcome = self._waiting.add(message)
        self._taking = None
        self.drain()
        return outcome

    def _wait_if_convenient(self, message: Message) -> int:
        """It need not arrive, but a client that is only slow may still want it."""
        if self._channel is None:
            return TAKEN
        unpromised = self._waiting.unpromised(message)
        return TAKEN if unpromised is None else self._wait(unpromised)

    # Out.

    def drain(self) -> None:
        """Deliver what waits while the client can take it, for as long as a turn may take."""
        channel = self._channel
        turn = self.kernel.turn
        if channel is not None and not self._draining_later:
            count = 0
            while channel.credit > 0 and self._sending is None and self._deliver_next(channel):
                count += 1
                if not count % DELIVERIES and turn.over():
                    self._draining_later = True
                    turn.later(self._drain_on)
                    break
        self._look()

    def _drain_on(self) -> None:
        self._draining_later = False
        if not self.deleted:
            self.drain()

    def _deliver_next(self, channel: Channel) -> bool:
        if len(self.letters) >= self._window:
            return False
        holding = self._waiting.holding
        if self._recalls is not None and not (holding is not None and holding.returned):
            found = self._recalls.next()
            if found is not None:
                return self._deliver_recalled(channel, *found)
            self._recalls = None
        if holding is None or not holding.ready:
            return False
        delivery = holding.pop()
        return delivery is not None and self._deliver(channel, holding, delivery)

    def _deliver(self, channel: Channel, holding: Holding, delivery: Delivery) -> bool:
        if delivery.expires and delivery.expires <= self.kernel.loop.time():
            self._waiting.expired(delivery)
            return True
        letter = delivery if isinstance(delivery, Letter) else self._letter(delivery)
        if letter.qos:
            if not letter.number:
                logged = holding.log is not None and letter.offset >= 0
                letter.number = number_of(letter.offset) if logged else self._next_number()
            if letter.number in self.letters:  # the one that has it is not answered yet
                holding.give_back(letter)
                return False
            self.letters[letter.number] = letter
            holding.sent(letter)
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
        message = delivery.message
        if self._contents is not None and self._contents.brings(message.route):
            return letter_of(delivery, self._contents.grant(message))
        grant = self._grants.of(message.route)
        if grant.qos < 0:
            shares = self._shares
            grant = AS_PUBLISHED if shares is None else shares.grant(message.route)
        return letter_of(delivery, grant)

    def _sent(self) -> None:
        """A large message has left whole."""
        self._sending = None
        self.drain()

    def _next_number(self) -> int:
        number = self._number % NUMBERS + 1
        while number in self.letters:
            number = number % NUMBERS + 1
        self._number = number
        return number

    def _look(self) -> None:
        """Whether the next message may go straight to the client."""
        channel = self._channel
        behind = self._sending is not None or self._recalls is not None or self.message_count
        self._taking = None if channel is None or channel.credit <= 0 or behind else channel
        if self._shares:
            self.share_out()

    def _finish(self, letter: Letter) -> None:
        self.letters.pop(letter.number, None)
        if letter.offset >= 0 and not self.deleted:
            if not letter.released:
                self._waiting.hold().done(letter)
            elif self.durable:
                self.once.complete(letter.offset)
        if self._shares:
            self.share_out()

    # What it draws as the client takes it.

    def recall(self, keys: Iterable[bytes], subscription: Subscription) -> None:
        if self._recalls is None:
            self._recalls = Recalls(self.vhost.retained.get)
        self._recalls.add(keys, subscription)
        self.drain()

    def _deliver_recalled(self, channel: Channel, message: Message, grant: Grant) -> bool:
        holding = self._waiting.hold()
        letter = Letter(message, holding.position, grant, qos_of(message, grant))
        if letter.qos and holding.paged:  # its record would be read back with those around it
            holding.add(message)
            return True
        holding.position += 1
        if message.flags & EXPIRES:
            letter.expires = holding.expiry(message)
        if letter.qos and holding.log is not None:
            letter.offset = holding.log.append(message)
        return self._deliver(channel, holding, letter)

    def join(self, queue: Queue, subscription: Subscription) -> None:
        if self._shares is None:
            self._shares = Shares(self)
        self._shares.join(queue, subscription)
        self.share_out()

    def leave(self, queue: str) -> None:
        if self._shares is not None:
            self._shares.leave(queue)

    def lost(self, queue: str) -> None:
        if self._shares is not None:
            self._shares.lost(queue)

    def share_out(self) -> None:
        if self._shares is not None:
            self._shares.draw(self._taking is not None and len(self.letters) < self._window)

    # Exactly once.

    @property
    def once(self) -> Once:
        if self._once is None:
            path = self.directory / "once" if self.durable else None
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

    @property
    def subscription_count(self) -> int:
        return len(self._subscriptions) + len(self._shares or ())

    def subscription(self, pattern: str) -> Subscription | None:
        return self._subscriptions.get(pattern)

    def bound(self, binding: Binding) -> None:
        self._subscriptions.add(binding)
        self._changed()

    def unbound(self, binding: Binding) -> None:
        self._subscriptions.remove(binding)
        self._changed()

    def _changed(self) -> None:
        self._contents = self._subscriptions.contents
        self.spurns_own = self._subscriptions.spurn_own

    def used(self) -> None:
        """How long a session may go unused is its client's to say."""

    def close(self) -> None:
        self._waiting.close()
        if self._once is not None:
            self._once.close()

    def delete(self) -> None:
        self.deleted = True
        channel = self._channel
        if channel is not None:
            self.channel_close(channel)
            why = NotFound(f"session '{self.name}' in vhost '{self.vhost.name}' was deleted")
            channel.terminal.channel_failure(channel, 0, why)
        if self._shares is not None:
            if self._waiting.holding is not None:
                self._shares.hand_back(self._waiting.holding)
            self._shares.leave_all()
        self.letters.clear()
        if self._once is not None:
            self._once.delete()
        self._waiting.delete()
        if self.durable:
            shutil.rmtree(self.directory, ignore_errors=True)

    # Management.

    @property
    def message_count(self) -> int:
        return self._waiting.count

    @property
    def consumer_count(self) -> int:
        return int(self._channel is not None)

    @property
    def dropped(self) -> int:
        """Messages there was no room for."""
        return self._waiting.dropped

    def purge(self) -> int:
        return self._waiting.purge()

    def describe(self) -> dict[str, Any]:
        return describe(self, self._waiting)
