"""The history: job records in PostgreSQL, written from copies of requests and responses."""
