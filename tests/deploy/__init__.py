"""The files of deploy/ that an operator runs: each by the tool that reads it, and by the service that they are about."""
