"""The client over MQTT, on paho."""
