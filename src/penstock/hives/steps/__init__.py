"""The steps from messages to figures, as functions of columns and of DataFrames.

Silver is here: `silver` is the step as Spark runs it, `decode` and `counting` are its two halves
without Spark, and each rule they follow is a module of its own: `clocks`, `orders`, `repeats`,
`rules` (with `deltas` for many reports at once), `wraps`, `rates`, `missed`. What is remembered of
a sensor from one batch to the next is in `states`.
"""
