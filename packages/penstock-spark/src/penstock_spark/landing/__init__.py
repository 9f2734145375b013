"""Any stream into a Delta table, exactly once: `penstock lake land`.

`settings.py` is what a person asks for, `formats/` decodes bodies, `message_decoder.py` makes rows
and dead letters of messages with Arrow alone, `engines.py` has Spark or this process run it, and
`lander.py` commits the files with the offsets. The tables are those of `penstock_spark.lake`.
"""
