"""The hives application: what people and businesses do with hives, over HTTP.

`domain` has the values and who may do what, `repositories` the SQL, `services` the rules, `api` the
endpoints. `resources.py` opens and closes everything they share; nothing is global, so two
applications may live in one process. `docs/hives.md` has the map.
"""
