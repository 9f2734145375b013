"""What Spark makes of announcements and reports: functions from DataFrames to DataFrames."""
