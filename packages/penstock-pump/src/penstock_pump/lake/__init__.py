"""Posts and reports in the lake: the Spark flow, file traces, daily summaries."""
