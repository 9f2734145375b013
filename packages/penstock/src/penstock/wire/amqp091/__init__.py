"""AMQP 0-9-1 without I/O, for the broker (`penstock.protocols.amqp091`) and for clients.

Methods are in `methods`, frames in `frames`, a client's message reader in `content`. Content
headers and field tables are in `penstock.core` (`basic_properties`, `field_table`), because the
broker's kernel uses them too.
"""
