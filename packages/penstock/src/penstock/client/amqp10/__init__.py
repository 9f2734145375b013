"""The client's patterns over AMQP 1.0, for Penstock, RabbitMQ and other brokers.

`fabric.py` implements the patterns. `connection.py` runs the engine of `penstock.wire.amqp10` on a
socket and reconnects, `publisher.py` sends until settled, `consumer.py` receives across reconnects,
`requester.py` sends requests and waits for replies. `endpoint.py` parses URLs, `message.py`
converts messages.
"""
