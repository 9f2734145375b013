"""Who is calling: tokens checked, and an issuer of our own where there is no Firebase.

The application keeps no passwords and no addresses of people: it verifies signed ID tokens and
knows their subject. Where the tokens come from is one setting. Firebase's are checked with
Google's published keys; the local issuer signs the same kind of token with keys of its own, and is
what a machine without a network, and every test, signs in with. There is no unsigned mode.
"""
