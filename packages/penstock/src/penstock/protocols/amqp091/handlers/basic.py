"""`basic.*`, except publish and most acks, which the frame reader passes to the channel."""

from __future__ import annotations

import base64
import os
from typing import Final

from penstock.broker.contract import Message, Queue
from penstock.core.errors import NotAllowed, PreconditionFailed, Unsupported
from penstock.protocols.amqp091.channel import DIRECT_REPLY_TO, Amqp091Consumer, AmqpChannel
from penstock.protocols.amqp091.stream_filter import stream_filter
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.methods import MethodArguments, encode_method_frame

#: Clients that use RabbitMQ's meaning of `global` only if the server's product is RabbitMQ, and the
#: standard's otherwise: without `global` the limit applies to the channel, at once (kombu, Celery).
STANDARD_QOS_PRODUCTS: Final = ("py-amqp",)

#: Arguments of a channel that takes a message only when it requests one.
PULL_ARGUMENTS: Final = {"pull": True}

#: What a deferred `basic.get` counts for among unread bytes.
GET_WEIGHT: Final = 1024


def basic_qos(channel: AmqpChannel, args: MethodArguments) -> None:
    if args.prefetch_size:
        raise Unsupported(f"prefetch_size!=0 ({args.prefetch_size})")
    if args.global_ or channel.connection.client_properties.get("product") in STANDARD_QOS_PRODUCTS:
        channel.global_prefetch = args.prefetch_count
        channel.request_all()
    else:
        channel.prefetch = args.prefetch_count
    channel.reply(methods.BASIC_QOS_OK)


def basic_consume(channel: AmqpChannel, args: MethodArguments) -> None:
    if args.consumer_tag in channel.consumers:
        raise NotAllowed(f"attempt to reuse consumer tag '{args.consumer_tag}'")
    tag = args.consumer_tag or _new_consumer_tag()
    if args.queue == DIRECT_REPLY_TO:
        consumer = _consume_replies(channel, args, tag)
    else:
        connection = channel.connection
        name = channel.queue_name(args.queue)
        connection.access.check("read", "queue", name)
        queue = connection.vhost.queue(name, connection)
        consumer = Amqp091Consumer(channel, queue, name, tag, args.no_ack, channel.prefetch)
        consumer.exclusive = args.exclusive
        consumer.arguments = args.arguments
        if queue.type == "stream":
            consumer.selects = stream_filter(args.arguments)
        known = {"exclusive": args.exclusive, "prefetch": channel.prefetch}
        queue.channel_open(consumer, {**args.arguments, **known})
        connection.host.kernel.inflight_pager.add(channel)
        channel.consumers[tag] = consumer
    channel.respond(args, methods.BASIC_CONSUME_OK, consumer_tag=tag)
    consumer.request()


def _consume_replies(channel: AmqpChannel, args: MethodArguments, tag: str) -> Amqp091Consumer:
    """Direct reply-to: replies reach the consumer without a queue."""
    if not args.no_ack:
        raise PreconditionFailed("reply consumer cannot acknowledge")
    if channel.reply_consumer is not None:
        raise PreconditionFailed("reply consumer already set")
    vhost = channel.connection.vhost
    name, driver = vhost.open_reply(DIRECT_REPLY_TO)
    consumer = Amqp091Consumer(channel, driver, name, tag, True, 0)
    driver.channel_open(consumer, {})
    channel.reply_consumer = consumer
    channel.consumers[tag] = consumer
    return consumer


def basic_cancel(channel: AmqpChannel, args: MethodArguments) -> None:
    consumer = channel.consumers.pop(args.consumer_tag, None)
    if consumer is not None:
        channel.writer.awaiting_credit.pop(consumer, None)
        if channel.sending is consumer:
            consumer.cancelled = True  # it ends after its large message
        else:
            consumer.driver.channel_close(consumer)
        if channel.reply_consumer is consumer:
            channel.connection.vhost.replies.pop(consumer.queue, None)
            channel.reply_consumer = None
    channel.respond(args, methods.BASIC_CANCEL_OK, consumer_tag=args.consumer_tag)


def basic_cancel_ok(channel: AmqpChannel, args: MethodArguments) -> None:
    """The response to `basic.cancel` from the broker."""


def basic_get(channel: AmqpChannel, args: MethodArguments) -> None:
    connection = channel.connection
    name = channel.queue_name(args.queue)
    connection.access.check("read", "queue", name)
    queue = connection.vhost.queue(name, connection)
    getter = Amqp091Consumer(channel, queue, name, "", args.no_ack, 0)
    queue.channel_open(getter, PULL_ARGUMENTS)
    connection.host.kernel.inflight_pager.add(channel)
    channel.after_large(lambda: _get(getter, queue), GET_WEIGHT)


def _get(getter: Amqp091Consumer, queue: Queue) -> None:
    channel = getter.channel
    found = False

    def encode_get_ok(tag: int, redelivered: bool, message: Message) -> bytes:
        nonlocal found
        found = True
        return encode_method_frame(
            channel.number,
            methods.BASIC_GET_OK,
            delivery_tag=tag,
            redelivered=redelivered,
            exchange=message.exchange,
            routing_key=message.routing_key,
            message_count=queue.message_count,
        )

    getter.method_encoder = encode_get_ok
    queue.channel_request(getter, 1)
    if not found:
        channel.reply(methods.BASIC_GET_EMPTY)
    if channel.sending is getter:
        getter.cancelled = True
    else:
        queue.channel_close(getter)


def basic_ack(channel: AmqpChannel, args: MethodArguments) -> None:
    channel.ack(args.delivery_tag, args.multiple)


def basic_reject(channel: AmqpChannel, args: MethodArguments) -> None:
    _nack(channel, args.delivery_tag, False, args.requeue)


def basic_nack(channel: AmqpChannel, args: MethodArguments) -> None:
    _nack(channel, args.delivery_tag, args.multiple, args.requeue)


def _nack(channel: AmqpChannel, tag: int, multiple: bool, requeue: bool) -> None:
    for known, unacked in channel.take_unacked(tag, multiple):
        queue = unacked[0].driver
        if getattr(queue, "type", "") == "stream":
            raise Unsupported("basic.nack and basic.reject not supported by stream queues")
        channel.settle(known, unacked, requeue)


def basic_recover(channel: AmqpChannel, args: MethodArguments) -> None:
    basic_recover_async(channel, args)
    channel.reply(methods.BASIC_RECOVER_OK)


def basic_recover_async(channel: AmqpChannel, args: MethodArguments) -> None:
    if not args.requeue:
        raise Unsupported("requeue=false")
    for tag, unacked in channel.take_unacked(0, True):
        channel.settle(tag, unacked, True)


def _new_consumer_tag() -> str:
    return "amq.ctag-" + base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
