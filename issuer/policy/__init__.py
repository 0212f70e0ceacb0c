"""The policy language, and the decision about what a registered integration may have signed. Pure.

`decide` checks a request against each rule of a policy; `disclose` selects what the caller may see of these checks.
`authoring` reads the files; `identity` verifies callers. policies/REFERENCE.md describes the language.
"""
