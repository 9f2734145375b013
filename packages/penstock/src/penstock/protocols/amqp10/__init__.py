"""AMQP 1.0 as the broker speaks it, on the engine of `wire/amqp10`."""
