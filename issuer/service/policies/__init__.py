"""Policies while the service runs: followed on the disk, exchanged as one, archived; and emergency stops."""
