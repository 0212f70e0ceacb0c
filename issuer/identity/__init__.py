"""Identities of callers: the table of identity providers, a profile for each kind, and verified callers. Pure.

This room knows the form of an identity token, its provider, and which of its claims are ids. `policy` knows what a
caller may have signed; `service.authn` fetches keys and checks signatures. Contract section 5, identities.
"""
