"""How fast messages get from a stream into Spark: `python -m benchmarks.spark`."""
