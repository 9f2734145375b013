"""AMQP 0-9-1 as a client speaks it, without a socket: bytes in, values out, and back.

Deliveries and publishes, which come by the million, are put together and taken apart here; the
methods around them are `pamqp`'s. Sockets are the clients' (`penstock.client.amqp091`: one on an
event loop, one that blocks). The broker's side is `penstock.protocols.amqp091`.
"""
