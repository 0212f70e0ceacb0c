"""The signer port: the signing keys in their states, and what relying parties see of them (keys/README.md).

Knows key files and states (next, active, retiring) and signs bytes (Ed25519, RFC 8032). Does not know what it signs:
the bytes are composed, and logged, before they come here.
"""
