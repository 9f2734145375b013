"""Jobs that wait: for a time, for other jobs, for the next occurrence of a schedule."""
