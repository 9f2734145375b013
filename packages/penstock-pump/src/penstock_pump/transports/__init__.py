"""Ways to fetch and to send files: one file a protocol, found by the scheme of a URL."""
