"""For relying parties, with effects: read a trust file, fetch what it names, verify files and whole folders of them.

Knows disks, URLs, caches and processes, and calls `issuer.verify` for every judgement (contract section 6). Does not
know how tokens are requested (`client`). README.md shows how to use it.
"""
