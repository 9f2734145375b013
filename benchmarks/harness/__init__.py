"""What all load generators here share: rows of octets, the pump, the rounds, the report.

Nothing in it knows a protocol. A benchmark brings templates of its messages, its scenarios and a
function that measures one of them once; it gets alternating rounds, checks of every octet, CPU
accounting and a page of tables.
"""
