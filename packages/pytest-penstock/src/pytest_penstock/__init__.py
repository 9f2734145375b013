"""A real AMQP and MQTT broker for tests, in the test's own process."""

from pytest_penstock.broker import BrokerFixture, PublishedMessage

__all__ = ["BrokerFixture", "PublishedMessage"]
