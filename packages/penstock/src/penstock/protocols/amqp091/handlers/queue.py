"""`queue.*`."""

from __future__ import annotations

from penstock.broker.declarations import SESSION_QUEUE_TYPE
from penstock.core.errors import PreconditionFailed
from penstock.protocols.amqp091.channel import DIRECT_REPLY_TO, AmqpChannel
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.methods import MethodArguments


def queue_declare(channel: AmqpChannel, args: MethodArguments) -> None:
    connection = channel.connection
    vhost = connection.vhost
    if args.passive and (args.queue in vhost.replies or args.queue == DIRECT_REPLY_TO):
        # A passive declare of a reply queue asks whether the requester is still connected; some
        # clients ask for the pseudo-queue before they consume from it.
        channel.reply(methods.QUEUE_DECLARE_OK, queue=args.queue, consumer_count=1)
        return
    if args.passive:
        queue = vhost.queue(channel.queue_name(args.queue), connection)
    else:
        if args.queue:
            connection.access.check("configure", "queue", args.queue)
        else:
            connection.access.check("configure", "queue", "amq.gen")
        if args.arguments.get("x-queue-type") == SESSION_QUEUE_TYPE:
            raise PreconditionFailed(
                f"invalid arg 'x-queue-type' for queue '{args.queue}' in vhost '{vhost.name}': "
                "sessions of MQTT clients are not declared"
            )
        connection.access.check_dead_letters(vhost, args.queue, args.arguments)
        queue = vhost.declare_queue(
            args.queue,
            durable=args.durable,
            owner=connection,
            exclusive=args.exclusive,
            auto_delete=args.auto_delete,
            arguments=args.arguments,
        )
    queue.used()
    channel.last_queue = queue.name
    channel.respond(
        args,
        methods.QUEUE_DECLARE_OK,
        queue=queue.name,
        message_count=queue.message_count,
        consumer_count=queue.consumer_count,
    )


def queue_bind(channel: AmqpChannel, args: MethodArguments) -> None:
    connection = channel.connection
    name = channel.queue_name(args.queue)
    key = args.routing_key
    if not args.queue and not key:
        key = name
    connection.access.check("write", "queue", name)
    connection.access.check("read", "exchange", args.exchange)
    exchange = connection.vhost.exchange(args.exchange)
    connection.access.check_bind(exchange, key, args.arguments)
    queue = connection.vhost.queue(name, connection)
    connection.vhost.bind(args.exchange, queue, key, args.arguments)
    channel.respond(args, methods.QUEUE_BIND_OK)


def queue_unbind(channel: AmqpChannel, args: MethodArguments) -> None:
    connection = channel.connection
    name = channel.queue_name(args.queue)
    connection.access.check("write", "queue", name)
    connection.access.check("read", "exchange", args.exchange)
    vhost = connection.vhost
    if name in vhost.queues:
        queue = vhost.queue(name, connection)
        vhost.unbind(args.exchange, queue, args.routing_key, args.arguments)
    channel.reply(methods.QUEUE_UNBIND_OK)


def queue_purge(channel: AmqpChannel, args: MethodArguments) -> None:
    connection = channel.connection
    name = channel.queue_name(args.queue)
    connection.access.check("read", "queue", name)
    count = connection.vhost.queue(name, connection).purge()
    channel.respond(args, methods.QUEUE_PURGE_OK, message_count=count)


def queue_delete(channel: AmqpChannel, args: MethodArguments) -> None:
    connection = channel.connection
    name = channel.queue_name(args.queue)
    connection.access.check("configure", "queue", name)
    count = connection.vhost.delete_queue(
        name, owner=connection, if_unused=args.if_unused, if_empty=args.if_empty
    )
    channel.respond(args, methods.QUEUE_DELETE_OK, message_count=count)
