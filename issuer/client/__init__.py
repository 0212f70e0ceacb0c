"""For a framework's CI: find the identity that the job has, ask an issuer for tokens, write them into the result file.

Knows the issuer's HTTP interface from outside (contract section 5) and the identity services of CI systems. Never shows
a credential. Does not verify tokens: a relying party does (`relying`). README.md shows how to use it.
"""
