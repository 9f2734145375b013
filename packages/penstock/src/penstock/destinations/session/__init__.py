"""Sessions of subscribers who come and go: a queue type of its own."""

from penstock.destinations.session.session import MqttSessionQueue

__all__ = ["MqttSessionQueue"]
