"""Shared by all rooms: configuration, errors, logging, metrics, retry policy, AMQP properties."""
