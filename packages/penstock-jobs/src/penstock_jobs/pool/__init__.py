"""Processes that Python functions run in, so that they can be ended, and hold up nobody's loop."""
