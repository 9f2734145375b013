"""As much AMQP 0-9-1 as a Spark worker needs: blocking, small, and quick to import.

A worker reads a range or publishes a partition and is gone. It has no event loop, and what it does
millions of times (taking deliveries apart, putting publishes together) is done here on bytes; the
methods around that are `pamqp`'s. Programs use `penstock.client` instead.
"""
