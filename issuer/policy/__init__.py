"""What a registered integration may have signed: the policy language, and the decision that it leads to. Pure.

Knows registrations and run claims, and says for each rule whether it passed (`decide`) and what of that its caller may
see (`disclose`). Does not know where a policy file lies (`authoring`) or how an identity was verified (`identity`). The
language is described in policies/REFERENCE.md.
"""
