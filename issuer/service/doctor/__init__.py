"""What may keep a service from running well: settings, keys, policies, store, log, disk, audit, the world around it.

Each look is a line of `issuer doctor --server` (formats/findings.py), and changes nothing. No line shows a secret.
"""
