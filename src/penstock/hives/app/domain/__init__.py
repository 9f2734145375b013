"""Values of the application and the rules that need no database: frozen, typed, without I/O.

What endpoints answer with are these values, field by field.
"""
