"""Brokers that route together: what is subscribed to at one reaches what is published at another.

`router.py` is a broker's routing without sockets or clocks of its own, `self.py` what it does
when it is told to, `link.py` and `links.py` its connections to neighbours. `docs/overlay.md` tells
the whole.
"""
