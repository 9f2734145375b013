"""MQTT sessions: a queue type."""

from penstock.destinations.session.session import MqttSessionQueue

__all__ = ["MqttSessionQueue"]
