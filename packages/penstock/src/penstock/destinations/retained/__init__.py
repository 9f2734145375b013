"""Retained messages: the last one of each topic.

`store.py` is the interface. `index.py` holds the messages in memory, in a `topic_tree.py` of
compact records. `compaction.py` keeps the log small.
"""

from penstock.destinations.retained.store import RetainedStore

__all__ = ["RetainedStore"]
