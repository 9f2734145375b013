"""The engine that runs the application: one master, and workers that share its listening socket.

The master (`master.py`) reads the configuration, opens the socket, and starts, watches, replaces
and drains workers; it serves nobody. A worker (`worker.py`) is one process with one event loop, in
which nothing blocks. What it serves is an application by name: the engine knows none.
"""
