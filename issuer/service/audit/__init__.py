"""The audit port: the file that the service appends to, and the limit on refusals in it."""
