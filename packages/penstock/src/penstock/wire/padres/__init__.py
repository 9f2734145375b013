"""PADRES as frames, sans-IO: what clients and brokers say to each other, and to one another.

`envelope.py` is the message, `frames.py` what is said beside it, `codec.py` the bytes of both,
`reader.py` takes a stream of them apart.
"""
