"""AMQP 0-9-1 at full speed: many small messages, transactions, little code between.

`penstock.client` has patterns for programs; here are the protocol's own words, for those parts of
Penstock that send or take ten thousand messages a second and decide themselves what is acknowledged
when. `connection` and `link` live on an event loop, `blocking` and `publisher` do without one. The
codec is `penstock.wire.amqp091`.
"""
