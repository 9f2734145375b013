"""Benchmarks: each package here is a program, `python -m benchmarks.NAME`."""
