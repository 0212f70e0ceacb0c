"""For trying the system out: local OIDC providers, any job of theirs, sample policies and a sample run. Never part of a
real service.

Knows how to run the service of `service` in one folder that is thrown away. Adds no rule and no endpoint to it.
"""
