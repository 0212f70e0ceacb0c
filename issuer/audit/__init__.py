"""The audit file, for the service that writes it and the commands that read it: events, chains, reader, search."""
