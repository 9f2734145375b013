"""Streams of a broker as the connector reads them.

`backend.py` defines `StreamBackend`. `arrow.py` reads a Penstock broker over HTTP, `amqp.py` any
broker with AMQP 0-9-1 streams, `rabbitmq/backend.py` a RabbitMQ with the stream plugin.
`endpoint.py` chooses one.
"""
