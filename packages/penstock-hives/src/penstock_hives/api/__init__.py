"""The HTTP API: the application, and what endpoints of all features share."""
