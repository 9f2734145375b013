"""Shovels and federation: messages moved between this broker and others over the network.

They are configured as in RabbitMQ, by runtime parameters and policies. A shovel moves messages from
one source to one destination. A federation link brings the messages of an upstream exchange or
queue to the exchange or queue of the same name here.

All of them are a `MessageTransfer` between a source and a destination, one module per protocol. It
acknowledges a message at its source when the destination has confirmed it, so neither a killed
broker nor a lost connection loses a message; a message may arrive twice.
"""
