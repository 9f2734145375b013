"""AMQP 0-9-1 as the queue of jobs needs it: transactions, many small messages, little code between.

The patterns of `penstock.client` have neither transactions nor other people's exchanges; a job's
final response and the acknowledgement of its request have to be one, and ten thousand of them a
second should not cost more than the work. Deliveries and publishes are bytes here; the methods
around them are `pamqp`'s.
"""
