"""The token service: everything that has effects on the issuer's side, one room for each port of `issuance.ports`.

`authn` says who calls, `admission` spends rates and uses, `signing` holds the keys, `audit` records, `http` is the
edge. `app` puts them together; `server` and `workers` run it; `reload` exchanges what decides. deploy/README.md
describes it.
"""
