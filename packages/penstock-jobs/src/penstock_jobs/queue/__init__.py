"""Requests and responses on a broker: which exchanges and queues, and what is said beside them."""
