"""Hives: places, the sensors at their doors, and how many people are inside.

One folder per feature (`deals`, `places`, `people`, `billing`, …): `endpoints.py` is HTTP,
`service.py` the rules, `repository.py` the SQL, `models.py` the values, `page.py` the dashboard
page.
`api` has the HTTP code that features share, `server` the processes, `public` the cached reads.
"""
