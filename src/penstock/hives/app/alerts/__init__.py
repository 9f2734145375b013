"""Alerts: what somebody wants to be told is a subscription in the content language.

`rules.py` turns a definition into subscriptions, `table.py` matches publications with all of them
at once, `evaluator.py` is the one place where a match becomes a notification. Pushing it to a
device is `push`'s work.
"""
