"""Destinations: exchanges, queues and streams."""
