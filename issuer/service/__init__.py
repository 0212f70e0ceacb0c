"""The token service: everything that has effects on the issuer's side."""
