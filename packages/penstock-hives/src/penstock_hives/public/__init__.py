"""Public reads, answered from a snapshot without the database.

`snapshot.py` makes one `PublicSnapshot` a minute for all workers, `view.py` adds live occupancy and
caches rendered pages, `reader.py` maps paths to them.
"""
