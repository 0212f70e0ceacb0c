"""A sandbox for trying the system out: local OIDC providers, their jobs, sample policies and a sample run. It runs the
service of `issuer.service` in a temporary folder, and adds no rule and no endpoint.
"""
