"""Transparency logs, as far as they are arithmetic: Merkle trees and their proofs (RFC 6962). Pure.

Knows leaves as bytes. Does not know tokens, files or a network; no log is run yet.
"""
