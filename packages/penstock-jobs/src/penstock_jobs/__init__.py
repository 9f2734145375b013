"""A queue for long-running jobs, with progress, over AMQP."""
