"""Assembles a broker: which drivers exist, which terminals listen where, and how it all ends."""

from penstock.server.broker import Broker

__all__ = ["Broker"]
