"""`tx.*`."""

from __future__ import annotations

from penstock.core.errors import PreconditionFailed
from penstock.terminals.amqp091 import methods
from penstock.terminals.amqp091.channel import AmqpChannel
from penstock.terminals.amqp091.methods import Arguments
from penstock.terminals.amqp091.transaction import Transaction


def tx_select(channel: AmqpChannel, args: Arguments) -> None:
    if channel.confirm:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = Transaction(channel)
    channel.reply(methods.TX_SELECT_OK)


def tx_commit(channel: AmqpChannel, args: Arguments) -> None:
    _transaction(channel).commit()

    def committed() -> None:
        if not channel.closing:
            channel.reply(methods.TX_COMMIT_OK)

    def failed(error: OSError) -> None:
        channel.connection.fail(error, methods.TX_COMMIT)

    channel.connection.host.kernel.committer.after(committed, failed)


def tx_rollback(channel: AmqpChannel, args: Arguments) -> None:
    _transaction(channel).rollback()
    channel.reply(methods.TX_ROLLBACK_OK)


def _transaction(channel: AmqpChannel) -> Transaction:
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction
