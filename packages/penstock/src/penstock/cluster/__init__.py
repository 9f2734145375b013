"""Replication of a broker's files to followers, and who leads."""
