"""RabbitMQ's own stream protocol, as much of it as reading takes: blocking and small.

The broker hands out its chunks as they lie on its disk, for about half the processor time that
deliveries over AMQP cost it. `frames.py` has the words, `connection.py` a connection, `lanes.py`
reads a range over several, `chunks.py` takes chunks apart, and `messages.py` makes of what is in
them what was published over AMQP 0-9-1.
"""
