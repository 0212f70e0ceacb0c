"""For trying the system out: a local OIDC provider, sample policies and a sample run. Never part of a real service."""
