"""The management API: a broker over HTTP, by the paths, verbs and fields of RabbitMQ's plugin.

`Management` (`management.py`) listens and answers on the broker's own loop. `connection.py` speaks
HTTP/1.1, `routes.py` is the table of all paths, and each kind of thing has a file: queues,
exchanges, bindings, users and so on. Beside what RabbitMQ has there are ranges of streams as Arrow
(`queues.py`) and a page for people (`page.html`).

A handler works on the broker's objects directly, within the permissions of whoever asks, and ends
the turn it began. One that has much to do does it in slices, so that nobody else waits.
"""
