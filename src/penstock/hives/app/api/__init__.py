"""The application over HTTP: thin endpoints over the services, one file for each feature group."""
