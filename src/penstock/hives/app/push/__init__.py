"""Telling people: an inbox in the database, and pushes to their devices.

What somebody is told is a row, written in the same transaction as what brought it about
(`outbox.py`): then it is told, whatever happens to this process. `policy.py` says when a device may
be disturbed, `sender.py` sends what is due and tries again what failed, and a channel is one way to
reach a device: Firebase (`fcm.py`), a browser (`webpush.py`), the log of a development machine.
"""
