"""`channel.*` and `confirm.*`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.core.errors import ChannelError, NotAllowed, PreconditionFailed, Unsupported
from penstock.protocols.amqp091.channel import AmqpChannel
from penstock.protocols.connection import check_channel_limit
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.methods import MethodArguments, encode_method_frame

if TYPE_CHECKING:
    from penstock.protocols.amqp091.terminal import Amqp091Terminal


def channel_open(terminal: Amqp091Terminal, number: int, args: MethodArguments) -> None:
    if number in terminal.channels:
        raise ChannelError("second 'channel.open' seen")
    limit = terminal.channel_max  # of open channels, not of their numbers, as in RabbitMQ
    if len(terminal.channels) >= limit:
        raise NotAllowed(
            f"number of channels opened has reached the negotiated channel_max {limit}"
        )
    check_channel_limit(terminal.host, terminal.access.user)
    terminal.channels[number] = AmqpChannel(terminal, number)
    terminal.send(encode_method_frame(number, methods.CHANNEL_OPEN_OK))


def channel_close(channel: AmqpChannel, args: MethodArguments) -> None:
    channel.end()
    terminal = channel.connection
    del terminal.channels[channel.number]
    terminal.send(encode_method_frame(channel.number, methods.CHANNEL_CLOSE_OK))


def channel_flow(channel: AmqpChannel, args: MethodArguments) -> None:
    if not args.active:
        raise Unsupported("active=false")
    channel.reply(methods.CHANNEL_FLOW_OK, active=True)


def confirm_select(channel: AmqpChannel, args: MethodArguments) -> None:
    if channel.transaction is not None:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.confirm = True
    channel.respond(args, methods.CONFIRM_SELECT_OK)
