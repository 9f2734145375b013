"""AMQP 1.0, sans-IO.

`values.py` has the types that Python lacks, `codec.py` the bytes of every type, `message.py` the
sections of a message. Frames and performatives, and the connections, sessions and links made of
them, stand on these.
"""
