"""Conversion between messages of AMQP 1.0 and the canonical message, by RabbitMQ's mapping.

    header              durable ↔ delivery mode, priority ↔ priority, ttl ↔ expiration
    message annotations headers whose names begin with x-; x-cc ↔ CC; x-basic-type ↔ type,
                        x-basic-cluster-id ↔ cluster id; x-header-NAME ↔ a table or an array
                        in the header NAME
    properties          basic properties (`properties.py`)
    application         the other headers (`values.py`)
      properties
    data                the body
    amqp-value          a string, a binary or null: the body, and its type in the header
                        x-amqp-1.0-value; other values as amqp-sequence
    amqp-sequence       the body is the encoded section, and the type is amqp-1.0

Delivery annotations are dropped: they are for the next peer only. Sections that AMQP 0-9-1 cannot
represent are preserved in the headers x-amqp-1.0-properties, -app-properties, -message-annotations
and -footer. Receivers of AMQP 1.0 get them back unless the message was changed in between
(`preserved_sections.py`). `decoder.py` converts from AMQP 1.0, `encoder.py` to AMQP 1.0.
"""
