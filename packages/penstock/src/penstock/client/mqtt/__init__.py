"""The client's patterns over MQTT 5 and 3.1.1, for Penstock, mosquitto and sensors.

`fabric.py` implements the patterns. `transport.py` runs paho's client on a socket, `connection.py`
reconnects, `publisher.py` sends until acknowledged, `session.py` receives across reconnects,
`requester.py` sends requests and waits for replies. `endpoint.py` parses URLs, `topics.py` checks
topics and filters, `message.py` converts messages.
"""
