"""Source tracking on Spark: the data are small and the work is large, so work is what is spread."""
