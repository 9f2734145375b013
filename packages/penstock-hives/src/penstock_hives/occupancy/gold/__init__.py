"""Gold tables in PostgreSQL: a batch of counts becomes occupancy, in one transaction."""
