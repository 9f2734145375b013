"""How fast reports become figures, live and from a backlog: `python -m benchmarks.pipeline`."""
