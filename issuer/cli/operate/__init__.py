"""Commands for the operator of an issuer."""
