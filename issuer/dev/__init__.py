"""Local OIDC providers, any job of theirs, sample policies and a sample run, for trying the system out. Never a real
service: it runs that of `service` in a throw-away folder, and adds no rule and no endpoint.
"""
