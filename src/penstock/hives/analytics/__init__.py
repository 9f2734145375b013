"""What a night finds out about hives and the people who look for them, on Spark.

Everything begins with a *day of a hive* (`days.py`): its figures, and what people did about it.
From these follow what is popular (`popularity.py`), how tastes change (`shifts.py`), how windows
and hives compare (`comparing.py`), what a deal has brought (`effects.py`), figures a business has
defined for itself (`metrics.py`), deals somebody may like (`recommending.py`), and what stands
out, in words (`insights.py`). Each is a function from DataFrames to a DataFrame. `nightly.py`
makes all of them, into PostgreSQL and the lake; no request ever does.
"""
