"""Client for the RabbitMQ stream protocol: read-only and blocking."""
