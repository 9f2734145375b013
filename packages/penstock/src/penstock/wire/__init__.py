"""Protocol codecs and engines without sockets and event loops: bytes in, values out.

The broker's protocols and the clients share them.
"""
