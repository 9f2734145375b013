"""Routing between brokers: publications reach the subscribers of all brokers.

`router.py` routes without sockets or clocks of its own, `self.py` handles commands, `link.py` and
`link_registry.py` are the connections to neighbours. See `docs/overlay.md`.
"""
