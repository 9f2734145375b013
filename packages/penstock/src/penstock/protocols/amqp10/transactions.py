"""Transactions: the coordinator link, posting and retiring messages in a transaction.

A client declares a transaction at the coordinator and gets its id. Deliveries with that id are
posted, and outcomes with it applied, when the transaction is discharged; if it fails, or its
coordinator link ends, they are discarded. A transaction may span the sessions of a connection.

A commit first posts. If a queue refuses a message, no outcome is applied and the client is told:
messages are not lost, but others of the transaction may have been published. A message that is
retired is the client's until then. If the link on which it was received ends before the discharge,
the message returns to its queue, and the transaction can only be rolled back.
"""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Final

from penstock.broker.contract import MANDATORY, Channel, Message
from penstock.core.errors import PenstockError, PreconditionFailed
from penstock.protocols.amqp10.conversion.decoder import convert_incoming
from penstock.protocols.amqp10.errors import to_amqp10_error
from penstock.wire.amqp10.errors import (
    DECODE_ERROR,
    LIMIT_EXCEEDED,
    MESSAGE_TOO_LARGE,
    NOT_IMPLEMENTED,
    TRANSACTION_ROLLBACK,
    UNKNOWN_TRANSACTION,
    LinkFault,
)
from penstock.wire.amqp10.message import AmqpValue, decode_message
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    TRANSACTION_REQUESTS,
    Amqp10Error,
    Declare,
    Declared,
    DeliveryState,
    Rejected,
    TransactionalState,
)
from penstock.wire.amqp10.values import Described

if TYPE_CHECKING:
    from penstock.broker.contract import Delivery, Fragment
    from penstock.protocols.amqp10.incoming_link import IncomingLink
    from penstock.protocols.amqp10.outgoing_link import OutgoingLink
    from penstock.protocols.amqp10.terminal import Amqp10Terminal
    from penstock.wire.amqp10.links import IncomingDelivery, OutgoingDelivery, ReceiverLink

#: What the coordinator can do: transactions of this broker, several in a session, in several
#: sessions of the connection.
COORDINATOR_CAPABILITIES: Final = (
    "amqp:local-transactions",
    "amqp:multi-txns-per-ssn",
    "amqp:multi-ssns-per-txn",
)
MAX_REQUEST_BYTES: Final = 64 * 1024
#: Requests in transit.
REQUEST_CREDIT: Final = 64
#: Open transactions of one connection.
MAX_TRANSACTIONS: Final = 1024
#: Memory of a message beside its header and its body.
MESSAGE_OVERHEAD_BYTES: Final = 400


class CoordinatorLink:
    """The context of the link on which a client declares and discharges transactions."""

    __slots__ = ("_parts", "_terminal", "_transactions", "link", "unsettled")

    def __init__(self, terminal: Amqp10Terminal, link: ReceiverLink) -> None:
        self._terminal = terminal
        self.link = link
        self.unsettled = 0  #: requests without an outcome
        self._parts: list[bytes] = []
        self._transactions: set[bytes] = set()

    def receive(self, delivery: IncomingDelivery, payload: bytes, more: bool) -> None:
        self._parts.append(payload)
        if sum(map(len, self._parts)) > MAX_REQUEST_BYTES:
            raise LinkFault(MESSAGE_TOO_LARGE, f"request is larger than {MAX_REQUEST_BYTES} bytes")
        if more:
            return
        body = decode_message(b"".join(self._parts)).body
        self._parts.clear()
        request = body.value if isinstance(body, AmqpValue) else None
        known = TRANSACTION_REQUESTS.find(
            request.descriptor if isinstance(request, Described) else None
        )
        if known is None or not isinstance(request, Described):
            raise LinkFault(DECODE_ERROR, "expected declare or discharge")
        if delivery.settled:
            raise LinkFault(DECODE_ERROR, f"{known.symbol} needs an outcome: it may not be settled")
        asked = known.read(request.value)
        if isinstance(asked, Declare):
            self._answer(delivery, self._declare(asked))
            return
        transactions = self._terminal.transactions
        transaction = transactions.get(asked.txn_id)
        if transaction is None or asked.txn_id not in self._transactions:
            reason = f"no transaction {asked.txn_id.hex()}"
            self._answer(delivery, Rejected(Amqp10Error(UNKNOWN_TRANSACTION, reason)))
            return
        del transactions[asked.txn_id]
        self._transactions.discard(asked.txn_id)
        if asked.fail:
            transaction.roll_back()
            self._answer(delivery, ACCEPTED)
        else:
            self.unsettled += 1
            transaction.commit(lambda outcome: self._discharged(delivery, outcome))

    def _declare(self, asked: Declare) -> DeliveryState:
        if asked.global_id is not None:
            return Rejected(
                Amqp10Error(NOT_IMPLEMENTED, "distributed transactions are not supported")
            )
        transactions = self._terminal.transactions
        if len(transactions) >= MAX_TRANSACTIONS:
            reason = f"a connection may have {MAX_TRANSACTIONS} open transactions"
            return Rejected(Amqp10Error(LIMIT_EXCEEDED, reason))
        number = self._terminal.next_transaction.to_bytes(8, "big")
        self._terminal.next_transaction += 1
        transactions[number] = Amqp10Transaction(self._terminal, number)
        self._transactions.add(number)
        return Declared(number)

    def _discharged(self, delivery: IncomingDelivery, outcome: DeliveryState) -> None:
        """The broker has committed, or failed to."""
        self.unsettled -= 1
        if self.link.live:
            self._answer(delivery, outcome)

    def _answer(self, delivery: IncomingDelivery, outcome: DeliveryState) -> None:
        delivery.settle(outcome)
        self.replenish_credit()

    def replenish_credit(self) -> None:
        link = self.link
        if link.credit + self.unsettled <= REQUEST_CREDIT // 2 and link.live:
            link.grant(REQUEST_CREDIT - self.unsettled)

    def abandon(self) -> None:
        self._parts.clear()

    def end(self) -> None:
        """Transactions that were not discharged are rolled back."""
        for number in self._transactions:
            self._terminal.transactions.pop(number).roll_back()
        self._transactions.clear()


class Amqp10Transaction:
    __slots__ = ("_held", "_id", "_parts", "_pool", "_posts", "_retired", "_terminal")

    def __init__(self, terminal: Amqp10Terminal, number: bytes) -> None:
        self._terminal = terminal
        self._id = number
        self._pool = terminal.host.kernel.pool
        self._held = 0  #: bytes of the budget
        self._parts: dict[IncomingDelivery, list[bytes]] = {}  #: of incomplete deliveries
        self._posts: list[Message] = []
        self._retired: dict[OutgoingDelivery, tuple[OutgoingLink, DeliveryState | None]] = {}

    # Posting.

    def receive(
        self, link: IncomingLink, delivery: IncomingDelivery, payload: bytes, more: bool
    ) -> None:
        parts = self._parts.setdefault(delivery, [])
        parts.append(payload)
        self._hold(len(payload))
        if more:
            return
        del self._parts[delivery]
        content = b"".join(parts)
        limit = self._terminal.host.kernel.settings.max_message_bytes
        if limit and len(content) > limit:
            raise LinkFault(MESSAGE_TOO_LARGE, f"message is larger than {limit} bytes")
        receipt = link.receipt(delivery)
        try:
            converted = convert_incoming(content, time())
            route = link.route_of(converted)
            link.producer(route)  # checks the permissions
        except PenstockError as error:
            link.refuse(receipt, error)
            return
        self._hold(MESSAGE_OVERHEAD_BYTES)
        flags = converted.flags | MANDATORY
        self._posts.append(Message(route, converted.header, converted.body, flags))
        link.settle(receipt, TransactionalState(self._id, ACCEPTED))

    def abandon(self, delivery: IncomingDelivery) -> None:
        """The rest of a delivery will not arrive."""
        self._parts.pop(delivery, None)

    def _hold(self, size: int) -> None:
        self._pool.charge(size)
        self._held += size
        if self._pool.spent:
            raise LinkFault(
                LIMIT_EXCEEDED,
                f"transaction of {self._held} bytes exceeds the memory budget; discharge earlier",
            )

    # Retiring.

    def retire(
        self, link: OutgoingLink, delivery: OutgoingDelivery, outcome: DeliveryState | None
    ) -> None:
        self._retired[delivery] = (link, outcome)

    # Discharge.

    def roll_back(self) -> None:
        """Discard the posts. Messages that the client has settled return to their queues; others
        are still the client's."""
        self._release()
        retired, self._retired = self._retired, {}
        for delivery, (link, _) in retired.items():
            if delivery.settled and delivery in link.open:
                del link.open[delivery]
                link.driver.channel_failure(link, delivery.context, True)
            delivery.state = None

    def _release(self) -> None:
        self._posts.clear()
        self._parts.clear()
        self._pool.discharge(self._held)
        self._held = 0

    def commit(self, done: Callable[[DeliveryState], None]) -> None:
        """`done` gets the outcome of the discharge, when everything is stored."""
        if self._parts or any(one not in link.open for one, (link, _) in self._retired.items()):
            self._fail(done, PreconditionFailed("a link of the transaction has ended"))
            return
        commit = TransactionCommit(
            self._terminal,
            lambda error: self._fail(done, error) if error else self._apply_outcomes(done),
        )
        # The outcome covers all of it, so nothing may be deferred to a later write batch.
        self._terminal.host.kernel.write_batch.reader = None
        commit.post(self._posts)

    def _fail(self, done: Callable[[DeliveryState], None], error: Exception) -> None:
        self.roll_back()
        reason = to_amqp10_error(error).description
        done(Rejected(Amqp10Error(TRANSACTION_ROLLBACK, reason)))

    def _apply_outcomes(self, done: Callable[[DeliveryState], None]) -> None:
        self._release()
        retired, self._retired = self._retired, {}
        for delivery, (link, outcome) in retired.items():
            if delivery in link.open:  # else its link ended while messages were stored
                del link.open[delivery]
                link.settle(delivery.context, outcome)
                delivery.settle(outcome)
        self._terminal.host.kernel.committer.after(
            lambda: done(ACCEPTED),
            lambda error: done(Rejected(Amqp10Error(TRANSACTION_ROLLBACK, str(error)))),
        )


class TransactionCommit:
    """Posts the messages of a transaction and waits for their receipts: a terminal of the contract,
    because the links that sent the messages may have ended."""

    def __init__(self, terminal: Amqp10Terminal, done: Callable[[Exception | None], None]) -> None:
        self._terminal = terminal
        self._done = done
        self._channels: dict[str, Channel] = {}
        self._waiting: set[int] = set()
        self._error: Exception | None = None

    def post(self, messages: list[Message]) -> None:
        self._waiting = {0, *range(1, len(messages) + 1)}  # 0: not all are posted
        for receipt, message in enumerate(messages, 1):
            try:
                channel = self._channel(message.exchange)
                channel.driver.channel_post(channel, message, receipt)
            except PenstockError as error:
                self._finish(receipt, error)
        self._terminal.published += len(messages)
        self._finish(0, None)

    def _channel(self, exchange: str) -> Channel:
        channel = self._channels.get(exchange)
        if channel is None:
            driver = self._terminal.vhost.exchange(exchange)
            channel = self._channels[exchange] = Channel(self, driver)
            driver.channel_open(channel, {})
        return channel

    # The contract.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        raise AssertionError("an exchange forwards nothing")

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        self._finish(receipt, None)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if receipt:
            self._finish(receipt, error)

    def _finish(self, receipt: int, error: Exception | None) -> None:
        if receipt not in self._waiting:
            return
        self._waiting.discard(receipt)
        self._error = self._error or error
        if self._waiting:
            return
        for channel in self._channels.values():
            channel.driver.channel_close(channel)
        self._channels.clear()
        self._done(self._error)


def find_transaction(terminal: Amqp10Terminal, state: TransactionalState) -> Amqp10Transaction:
    transaction = terminal.transactions.get(state.txn_id)
    if transaction is None:
        raise LinkFault(UNKNOWN_TRANSACTION, f"no transaction {state.txn_id.hex()}")
    return transaction
