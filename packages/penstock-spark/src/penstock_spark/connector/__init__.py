"""The Spark connector: streams as a source of DataFrames, and an exchange as a sink for them.

Spark's Python Data Source API calls it in three places: the driver's planner, the driver's process
for a streaming query, and the workers. All state that matters is Spark's (the checkpoint) or the
broker's (the stream); what is kept here between calls saves questions and can be lost.
"""
