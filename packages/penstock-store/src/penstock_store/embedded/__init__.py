"""PostgreSQL from a wheel: nothing to install, one directory, no port."""

from penstock_store.embedded.server import EmbeddedServer

__all__ = ["EmbeddedServer"]
