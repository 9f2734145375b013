"""Identity: verification of ID tokens, and a local issuer where there is no Firebase.

The application stores no passwords or addresses of users of Firebase; it knows the subject of a
verified token. `service.py` is the local issuer: sign-up, sign-in, refresh, password reset.
"""
