"""Plugins written for Sarracenia: classes of sr3 (`callback`), functions of v2 (`on_message`, …).

They run unchanged. What they import from Sarracenia is provided by `sarracenia_api.py`.
"""
