"""People-counting sensors: their messages, and a simulated fleet that sends them.

`messages` has a codec for every message, one value at a time; `columns` decodes the same from Arrow
buffers, millions a second; `fleet` is a pure simulation that knows the truth. None of them does any
I/O or knows Spark. The modules beside them are the edges: frames to a broker at their pace
(`sending`, `pace`, `simulating`), to files and back (`recording`, `telling`, `tables`), and orders
to a sensor (`configuring`).
"""
