"""Who runs the service: the supervisor, its workers and helpers, and the folder that it starts from."""
