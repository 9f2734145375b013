"""The client over AMQP 0-9-1, for Penstock and RabbitMQ.

`fabric` and its parts (`publisher`, `consumer`, `requester`) are the patterns. `connection` and
`channel` are the protocol on an event loop; `blocking_connection` and `bulk_publisher` do without
one.
"""
