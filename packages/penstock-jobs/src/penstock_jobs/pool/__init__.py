"""A pool of processes for Python functions, so that they can be ended and never block the loop."""
