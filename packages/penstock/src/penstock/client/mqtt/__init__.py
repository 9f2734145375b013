"""The fabric over MQTT 5 and 3.1.1, spoken by Penstock, by mosquitto and by sensors.

`fabric.py` puts the patterns together. Under it, from the socket up: `wire.py` (paho's client, made
by `dial.py`, its socket watched by `watch.py`), `link.py` (a wire that mends itself), `outlet.py`
(sending until acknowledged), `subscriptions.py` with `inlet.py` (receiving across reconnects), all
of one client in `session.py`, and `requester.py`. Values are in `endpoint.py` (what a URL says),
`topics.py`, `properties.py`, `delivery.py` and `faults.py`.
"""
