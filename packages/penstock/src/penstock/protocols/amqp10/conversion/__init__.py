"""A message of AMQP 1.0 as the canonical message, and back: RabbitMQ's mapping.

    header              durable ↔ delivery mode, priority ↔ priority, ttl ↔ expiration
    message annotations headers whose names begin with x-; x-cc ↔ CC; x-basic-type ↔ type,
                        x-basic-cluster-id ↔ cluster id; x-header-NAME ↔ a table or an array
                        that is the header NAME
    properties          basic properties (`properties.py`)
    application         the other headers (`values.py`, `tables.py`)
      properties
    data                the body
    amqp-value          a text, a binary or null: the body as it is, and the header
                        x-amqp-1.0-value says which; otherwise as the next
    amqp-sequence       the body is the section's bytes, and the type is amqp-1.0

Delivery annotations end here: they are from one peer to the next. What AMQP 0-9-1 cannot say
travels beside the message as it came, in the headers x-amqp-1.0-properties, -app-properties,
-message-annotations and -footer, and goes out again to readers of 1.0 as long as it still says what
the rest of the message does (`preserved_sections.py`).
"""

from penstock.protocols.amqp10.conversion.incoming import (
    ConvertedMessage,
    incoming,
    incoming_head,
)
from penstock.protocols.amqp10.conversion.outgoing import outgoing

__all__ = ["ConvertedMessage", "incoming", "incoming_head", "outgoing"]
