"""`exchange.*`."""

from __future__ import annotations

from penstock.protocols.amqp091.channel import AmqpChannel
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.methods import MethodArguments


def exchange_declare(channel: AmqpChannel, args: MethodArguments) -> None:
    connection = channel.connection
    vhost = connection.vhost
    if args.passive:
        vhost.existing_exchange(args.exchange)
    else:
        connection.access.check("configure", "exchange", args.exchange)
        alternate = args.arguments.get("alternate-exchange")
        if isinstance(alternate, str):
            connection.access.check("read", "exchange", args.exchange)
            connection.access.check_forward(alternate)
        vhost.declare_exchange(
            args.exchange,
            args.type,
            durable=args.durable,
            auto_delete=args.auto_delete,
            internal=args.internal,
            arguments=args.arguments,
        )
    channel.respond(args, methods.EXCHANGE_DECLARE_OK)


def exchange_delete(channel: AmqpChannel, args: MethodArguments) -> None:
    connection = channel.connection
    connection.access.check("configure", "exchange", args.exchange)
    connection.vhost.delete_exchange(args.exchange, if_unused=args.if_unused)
    channel.respond(args, methods.EXCHANGE_DELETE_OK)


def exchange_bind(channel: AmqpChannel, args: MethodArguments) -> None:
    connection = channel.connection
    connection.access.check_forward(args.destination)
    connection.access.check("read", "exchange", args.source)
    source = connection.vhost.exchange(args.source)
    connection.access.check_bind(source, args.routing_key, args.arguments)
    destination = connection.vhost.exchange(args.destination)
    connection.vhost.bind(args.source, destination, args.routing_key, args.arguments)
    channel.respond(args, methods.EXCHANGE_BIND_OK)


def exchange_unbind(channel: AmqpChannel, args: MethodArguments) -> None:
    connection = channel.connection
    connection.access.check("write", "exchange", args.destination)
    connection.access.check("read", "exchange", args.source)
    vhost = connection.vhost
    destination = vhost.exchanges.get(args.destination)
    if destination is not None:
        vhost.unbind(args.source, destination, args.routing_key, args.arguments)
    channel.respond(args, methods.EXCHANGE_UNBIND_OK)
