"""Sessions of subscribers who come and go: a queue type of its own."""

from penstock.drivers.session.session import Session

__all__ = ["Session"]
