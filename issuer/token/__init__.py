"""The verify token, and the types of the HTTP API for the service and its clients. Pure."""
