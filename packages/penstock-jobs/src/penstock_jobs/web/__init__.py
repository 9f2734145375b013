"""The job pages: submit data, follow jobs, inspect results."""
