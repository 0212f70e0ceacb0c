"""Outside the server: an identity from the CI, the request for tokens, an issuer's key set, and the file to write."""
