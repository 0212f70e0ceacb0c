"""The processes of the service: supervisor, workers and helper, and the folder that `issuer init` makes."""
