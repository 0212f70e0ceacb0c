"""The authenticator port: verify a credential of any of the five kinds, and say who sent it (contract section 5).

`authenticator` finds the provider and calls the verifier of its kind: `oidc`, `oauth`, `introspection`, `huggingface`
or `pat`. Below them: key sets, answers that are kept, connections to checked addresses, and the count of each source's
refusals. Knows no policy, and asks no provider that `providers.yaml` does not register.
"""
