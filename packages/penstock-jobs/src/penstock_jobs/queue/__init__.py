"""Requests and responses on a broker: exchanges, queues, properties, connections."""
