"""Transports fetch and send files: one module per protocol, chosen by the scheme of a URL."""
