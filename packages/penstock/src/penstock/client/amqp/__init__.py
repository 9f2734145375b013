"""The fabric over AMQP 0-9-1, spoken by Penstock and by RabbitMQ.

`fabric.py` puts the patterns together. Under it, from the socket up: `link.py` (a connection that
mends itself), `faults.py` (which errors pass and which stay), `outlet.py` (sending until safe),
`inlet.py` with its `sources.py` (receiving across reconnects) and `requester.py`.
"""
