"""The broker's load generator and the harness that compares two brokers with it.

`python -m benchmarks.broker --help` is the way in; `scenarios` says what is measured and how.
"""
