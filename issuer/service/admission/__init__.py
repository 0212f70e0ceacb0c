"""The admission port on a store that speaks the Redis protocol: one script, one round trip (contract section 5, uses).

Knows rates, quarantine, the store's epoch and use records; `admit.lua` is where they are decided. Does not know what a
request claims: it stores and returns templates as bytes. What the store does not answer clearly is undecided, never
yes.
"""
