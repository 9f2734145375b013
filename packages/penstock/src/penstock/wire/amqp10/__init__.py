"""AMQP 1.0 without I/O.

`values` has the types that Python lacks, `codec` the encoding of every type, `message` the sections
of a message. `connection`, `session` and `links` are the protocol engine that broker and client
share; `transfers` has the frequent performatives, `performatives` the others.
"""
