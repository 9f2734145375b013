"""Local files: in flight under temporary names, verified, assembled from blocks, committed.

A file under its final name is always complete and verified. Everything here blocks, and is called
in a thread.
"""
