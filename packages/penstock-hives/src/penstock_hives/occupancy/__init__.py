"""Occupancy: from sensor messages to how full each hive is.

`flow` is the Spark flow `hives`. For each batch `silver` decodes messages (`decoder`), computes
counts (`counts`, with `anomalies`, `deltas` and the rules of `counter_rules`) and writes the silver
tables. `gold` then updates PostgreSQL in one transaction, and `publisher` publishes the changes.
`sensor_states` is the state per sensor between batches. `slots`, `rollups` and `calendars` compute
occupancy, hours and days; they are functions of columns without I/O.
"""
