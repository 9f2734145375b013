"""The hives application under load: anonymous reads beside plain FastAPI, and open streams."""
