"""The audit port: the file that the service appends to, and how much of it refusals may take."""
