"""The management API: the paths, methods and fields of RabbitMQ's management plugin.

`server.py` listens on the broker's loop and dispatches requests, `http.py` is HTTP/1.1, and each
kind of resource has a module with its handlers and `routes`. In addition to RabbitMQ's API there
are ranges of streams as Arrow (`queues.py`), the content space and the overlay (`content.py`) and
HTML pages. A handler works on the broker's objects with the permissions of the user. Long work
yields to the event loop in between.
"""
