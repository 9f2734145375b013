"""The tables people ask: a batch of counts becomes occupancy in PostgreSQL, all or nothing."""

from penstock.hives.gold.books import Books
from penstock.hives.gold.facts import Facts
from penstock.hives.gold.heads import record_count

__all__ = ["Books", "Facts", "record_count"]
