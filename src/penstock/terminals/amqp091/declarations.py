"""Every method of AMQP 0-9-1 and of RabbitMQ's extensions, declared in one table.

A line is the class, the method, its name and its fields in order, each with its type; a name
without a type is a bit. `opaque` is a short string that travels with content and is passed on as
it came; any other must be UTF-8. `ticket` is the reserved number that opens many methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.terminals.amqp091.fields import BIT, TYPES, FieldType

_DECLARATIONS: Final = """
10 10  connection.start         version_major:octet version_minor:octet server_properties:table
                                mechanisms:longstr locales:longstr
10 11  connection.start-ok      client_properties:table mechanism:shortstr response:longstr
                                locale:shortstr
10 20  connection.secure        challenge:longstr
10 21  connection.secure-ok     response:longstr
10 30  connection.tune          channel_max:short frame_max:long heartbeat:short
10 31  connection.tune-ok       channel_max:short frame_max:long heartbeat:short
10 40  connection.open          virtual_host:shortstr capabilities:shortstr insist
10 41  connection.open-ok       known_hosts:shortstr
10 50  connection.close         reply_code:short reply_text:shortstr class_id:short method_id:short
10 51  connection.close-ok
10 60  connection.blocked       reason:shortstr
10 61  connection.unblocked
10 70  connection.update-secret new_secret:longstr reason:shortstr
10 71  connection.update-secret-ok

20 10  channel.open             out_of_band:shortstr
20 11  channel.open-ok          channel_id:longstr
20 20  channel.flow             active
20 21  channel.flow-ok          active
20 40  channel.close            reply_code:short reply_text:shortstr class_id:short method_id:short
20 41  channel.close-ok

30 10  access.request           realm:shortstr exclusive passive active write read
30 11  access.request-ok        ticket:short

40 10  exchange.declare         ticket:short exchange:shortstr type:shortstr passive durable
                                auto_delete internal no_wait arguments:table
40 11  exchange.declare-ok
40 20  exchange.delete          ticket:short exchange:shortstr if_unused no_wait
40 21  exchange.delete-ok
40 30  exchange.bind            ticket:short destination:shortstr source:shortstr
                                routing_key:shortstr no_wait arguments:table
40 31  exchange.bind-ok
40 40  exchange.unbind          ticket:short destination:shortstr source:shortstr
                                routing_key:shortstr no_wait arguments:table
40 51  exchange.unbind-ok

50 10  queue.declare            ticket:short queue:shortstr passive durable exclusive auto_delete
                                no_wait arguments:table
50 11  queue.declare-ok         queue:shortstr message_count:long consumer_count:long
50 20  queue.bind               ticket:short queue:shortstr exchange:shortstr routing_key:shortstr
                                no_wait arguments:table
50 21  queue.bind-ok
50 30  queue.purge              ticket:short queue:shortstr no_wait
50 31  queue.purge-ok           message_count:long
50 40  queue.delete             ticket:short queue:shortstr if_unused if_empty no_wait
50 41  queue.delete-ok          message_count:long
50 50  queue.unbind             ticket:short queue:shortstr exchange:shortstr routing_key:shortstr
                                arguments:table
50 51  queue.unbind-ok

60 10  basic.qos                prefetch_size:long prefetch_count:short global_
60 11  basic.qos-ok
60 20  basic.consume            ticket:short queue:shortstr consumer_tag:shortstr no_local no_ack
                                exclusive no_wait arguments:table
60 21  basic.consume-ok         consumer_tag:shortstr
60 30  basic.cancel             consumer_tag:shortstr no_wait
60 31  basic.cancel-ok          consumer_tag:shortstr
60 40  basic.publish            ticket:short exchange:opaque routing_key:opaque mandatory immediate
60 50  basic.return             reply_code:short reply_text:opaque exchange:opaque
                                routing_key:opaque
60 60  basic.deliver            consumer_tag:opaque delivery_tag:longlong redelivered
                                exchange:opaque routing_key:opaque
60 70  basic.get                ticket:short queue:shortstr no_ack
60 71  basic.get-ok             delivery_tag:longlong redelivered exchange:opaque
                                routing_key:opaque message_count:long
60 72  basic.get-empty          cluster_id:shortstr
60 80  basic.ack                delivery_tag:longlong multiple
60 90  basic.reject             delivery_tag:longlong requeue
60 100 basic.recover-async      requeue
60 110 basic.recover            requeue
60 111 basic.recover-ok
60 120 basic.nack               delivery_tag:longlong multiple requeue

85 10  confirm.select           no_wait
85 11  confirm.select-ok

90 10  tx.select
90 11  tx.select-ok
90 20  tx.commit
90 21  tx.commit-ok
90 30  tx.rollback
90 31  tx.rollback-ok
"""


@dataclass(frozen=True, slots=True)
class Method:
    """One method of the protocol."""

    id: int  #: the class in the high half, the method in the low one
    name: str  #: as the standard writes it: `queue.declare-ok`
    fields: tuple[tuple[str, FieldType], ...]
    handler: str  #: the name as Python writes it: `queue_declare_ok`
    content: bool  #: whether a content header and a body follow


#: The methods that a content header and a body follow.
_CARRIERS: Final = frozenset({"basic.publish", "basic.return", "basic.deliver", "basic.get-ok"})


def _parse(declarations: str) -> dict[int, Method]:
    methods: dict[int, Method] = {}
    # A line that continues the one before has no number in front.
    for words in (line.split() for line in declarations.replace("\n   ", " ").splitlines()):
        if not words:
            continue
        number = int(words[0]) << 16 | int(words[1])
        name = words[2]
        fields = tuple(_field(*word.split(":")) for word in words[3:])
        handler = name.replace(".", "_").replace("-", "_")
        methods[number] = Method(number, name, fields, handler, name in _CARRIERS)
    return methods


def _field(name: str, kind: str = BIT.name) -> tuple[str, FieldType]:
    return name, TYPES[kind]


METHODS: Final = _parse(_DECLARATIONS)
