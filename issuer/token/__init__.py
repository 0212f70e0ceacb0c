"""The verify token, and everything that goes over the wire, for both ends. Pure."""
