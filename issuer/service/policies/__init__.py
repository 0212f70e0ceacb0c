"""Policies while the service runs: the watcher, the active set, the archive, and emergency stops."""
