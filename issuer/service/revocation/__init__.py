"""Revocations of tokens: the record of them, the signed list that relying parties read, and the key of that list.

Implements `issuance.ports.Revocations`. `issuer.verify.revocations` defines the format of the list and reads it.
"""
