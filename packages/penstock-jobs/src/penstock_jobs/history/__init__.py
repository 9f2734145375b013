"""What became of jobs, in PostgreSQL: fed by the messages that jobs are made of."""
