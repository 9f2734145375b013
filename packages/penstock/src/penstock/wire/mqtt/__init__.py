"""The MQTT 3.1.1 and 5.0 codec, sans-IO: bytes in, packets out, and back."""
