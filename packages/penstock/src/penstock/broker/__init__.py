"""The kernel: the terminal/driver contract, buckets, virtual hosts, the log, users."""
