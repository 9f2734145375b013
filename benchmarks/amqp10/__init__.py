"""AMQP 1.0's load generator: Penstock beside RabbitMQ and its plugin.

`python -m benchmarks.amqp10 --help` is the way in; `scenarios` says what is measured and how.
"""
