"""The client's patterns over AMQP 0-9-1, for Penstock and RabbitMQ.

`fabric.py` implements the patterns. `connection.py` is a connection that reconnects and classifies
errors, `publisher.py` sends until confirmed, `consumer.py` receives across reconnects,
`requester.py` sends requests and waits for replies.
"""
