"""What this issuer takes back: the record of it, the signed list that relying parties read, and the key of that list.

Implements `issuance.ports.Revocations`. The form of the list is `issuer.verify.revocations`, which reads it, too.
"""
