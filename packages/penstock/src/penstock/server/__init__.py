"""Assembles a broker: event loop, listeners, destination types, overlay, management, shutdown."""

from penstock.server.broker import Broker

__all__ = ["Broker"]
