"""Streams as the connector sees them, whichever broker keeps them.

`contract.py` is what varies: `ranges.py` keeps it over Penstock's Arrow ranges, `replays.py` over
AMQP 0-9-1 for RabbitMQ and its likes; `opening.py` asks a broker which of them it is for.
"""
