"""Live occupancy: server-sent events, WebSockets, and polling with ETags.

One `OccupancySubscriber` per worker reads the exchange `occupancy`. Its messages become numbered
batches of one `ChangeFeed`, which all streams of the worker read.
"""
