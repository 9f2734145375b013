"""PADRES: clients that advertise, subscribe and publish in the content language."""
