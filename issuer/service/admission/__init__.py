"""The admission port on a store with the Redis protocol: one script, one round trip (contract section 5, uses).

It handles rates, quarantine, the store's epoch and use records; `admit.lua` decides. It does not know the claims of a
request, and stores templates as bytes. If the store gives no clear answer, the request is undecided, never granted.
"""
