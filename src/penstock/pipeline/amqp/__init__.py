"""What AMQP 0-9-1 brings, taken apart by the thousand: for those who read streams with Spark.

A reader does this for every message, so it is done on blocks of bytes with NumPy: deliveries are
found where they lie, and the offsets in them. The connection is `penstock.client.amqp091.blocking`,
its codec `penstock.wire.amqp091`.
"""
