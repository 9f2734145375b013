"""Notifications: an inbox in the database, and pushes to devices.

A notification is a row that is written in the transaction of its cause (`repository.py`).
`models.py` decides when a device may be disturbed; `sender.py` sends through `fcm.py` and
`webpush.py`.
"""
