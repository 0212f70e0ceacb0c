"""The transparency log, as far as it is arithmetic and text: trees, leaves, tiles, notes (C2SP, RFC 6962). Pure.

Does not know a database, a network or a clock, nor which of the things that leaves say are true.
"""
