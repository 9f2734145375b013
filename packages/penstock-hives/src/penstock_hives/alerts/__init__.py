"""Alerts: each notification setting is a subscription in the content language.

`matcher.py` matches occupancy and deals with all subscriptions at once, `evaluator.py` turns
matches into notifications, `worker.py` is the process.
"""
