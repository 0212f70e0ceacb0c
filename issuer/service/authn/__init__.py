"""The authenticator port: verify a credential of any of the five kinds, and return its caller (contract section 5).

`authenticator` finds the provider and calls the verifier of its kind: `oidc`, `oauth`, `introspection`, `huggingface`
or `pat`. They share key sets, cached answers, connections to checked addresses, and the count of refusals per source.
The port knows no policy, and asks only providers that `providers.yaml` registers.
"""
