"""The client over AMQP 1.0, on `penstock.wire.amqp10`."""
