"""How busy a hive will be tomorrow, hour by hour; and whether to believe it."""
