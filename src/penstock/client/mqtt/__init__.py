"""The fabric over MQTT 5 and 3.1.1, spoken by Penstock, by mosquitto and by sensors.

`fabric.py` puts the patterns together. Under it, from the socket up: `wire.py` (paho's client on
the event loop), `link.py` (a wire that mends itself), `outlet.py` (sending until acknowledged),
`subscriptions.py` with `inlet.py` (receiving across reconnects) and `requester.py`. Values are in
`endpoint.py` (what a URL says), `topics.py`, `properties.py`, `delivery.py` and `faults.py`.
"""
