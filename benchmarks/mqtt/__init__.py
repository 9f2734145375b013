"""MQTT's load generator: Penstock beside mosquitto and amqtt.

`python -m benchmarks.mqtt --help` is the way in; `scenarios` says what is measured and how.
"""
