"""The token service: all side effects of issuance, with one room for each port of `issuance.ports`.

`authn` authenticates callers, `admission` spends rates and uses, `signing` has the keys, `audit` writes the audit file,
and `http` is the edge. `app` puts them together, and `process` runs them. deploy/README.md describes the service.
"""
