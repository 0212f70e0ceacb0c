"""The signer port: the signing keys in their states, and the key set for relying parties (keys/README.md).

It reads key files and states (next, active, retiring) and signs bytes (Ed25519, RFC 8032). It does not know the meaning
of these bytes: they are composed, and logged, before the signer gets them.
"""
