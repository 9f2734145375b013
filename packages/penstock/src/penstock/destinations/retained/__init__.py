"""Retained messages: the last one of each topic, for those who come later.

`RetainedStore` (`store.py`) is what a virtual host has one of. Behind it: what is kept, in memory
(`index.py`, a `tree.py` of compact records and their shared envelopes), the log that it outlives a
restart by, the bodies of large messages beside it (`compaction.py`), and what keeps that log small
(`compaction.py`).
"""

from penstock.destinations.retained.store import RetainedStore

__all__ = ["RetainedStore"]
