"""The fabric over AMQP 1.0, spoken by Penstock, by RabbitMQ and by most other brokers.

`fabric.py` puts the patterns together. Under it, from the socket up: `wire.py` (the engine of
`penstock.wire.amqp10` on a socket), `trunk.py` (a connection that mends itself), `outlet.py`
(sending until settled), `inlet.py` over `sources.py` (receiving across reconnects), and
`requester.py` with `replies.py`. Values are in `endpoint.py` (what a URL says), `contents.py` (what
a message says), `delivery.py` and `faults.py`.
"""
