"""Penstock: a message fabric in Python."""

__version__ = "0.1.0"
