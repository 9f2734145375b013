"""The Spark connector: streams as a source of DataFrames, an exchange as a sink.

Spark's Python Data Source API calls it in three places: the driver's planner, the driver's process
of a streaming query, and the workers. All state is in Spark's checkpoint or in the stream; what is
cached here between calls can be lost.
"""
