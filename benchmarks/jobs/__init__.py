"""Jobs: the queue beside Celery and Dramatiq, and source tracking on Spark."""
