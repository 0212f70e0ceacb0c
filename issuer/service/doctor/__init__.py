"""The checks of `issuer doctor --server`: settings, keys, policies, store, log, disk, audit, providers and host.

Each check yields lines (formats/findings.py). It changes nothing, and no line contains a secret.
"""
