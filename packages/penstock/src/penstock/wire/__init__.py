"""Protocols that both ends of a wire speak: bytes in, values out, no sockets and no loop.

What is here is shared by the broker's terminals and by the client, and belongs to neither.
"""
