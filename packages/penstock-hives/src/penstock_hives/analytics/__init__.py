"""Analytics: what is computed each night about hives, deals and users, on Spark.

All results start from *hive days* (`hive_days`): figures of a hive and day, and user actions.
`trends` has popularity, preference shifts and comparisons; `deal_effects`, `metrics` (formulas of
businesses), `recommendations` and `insights` follow. Each is a function from DataFrames to a
DataFrame. `nightly` computes all of them and writes them to PostgreSQL and the lake; requests only
read.
"""
