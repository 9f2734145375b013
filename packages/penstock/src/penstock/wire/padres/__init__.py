"""The PADRES protocol without I/O: messages (`envelope`), frames and their reader (`frames`)."""
