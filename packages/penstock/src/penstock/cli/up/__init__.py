"""`penstock up`: a supervisor of all parts on one machine, and the panel that shows them.

Installed packages add parts by the entry point group `penstock.up` (`extension.py`).
"""
