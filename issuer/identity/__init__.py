"""Who is calling: the closed table of identity providers, the profile of each kind, and a verified caller. Pure.

Knows how an identity token is formed, whose it is and which of its claims are ids. Does not know what its caller may
have signed (`policy`), and neither fetches keys nor checks signatures (`service.authn`). Contract section 5,
identities.
"""
