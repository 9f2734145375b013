"""People-counting sensors: their protocol, a simulated fleet, and sensors as a feature.

`protocol` encodes and decodes one message at a time; `columnar` decodes columns of messages from
Arrow buffers; `fleet` simulates devices and knows the ground truth. These three do no I/O and do
not import Spark. `publisher`, `simulation` and `configurator` talk to a broker; `recorder` reads
and writes files; `catalogue_writer` writes the simulated hives and sensors to PostgreSQL.
"""
