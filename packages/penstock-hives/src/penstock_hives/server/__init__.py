"""The server: one master process, and workers that share its listening socket.

`master.py` opens the socket and starts, watches, replaces and drains workers. A worker
(`worker.py`) runs one event loop with the ASGI application of `application.py`.
"""
