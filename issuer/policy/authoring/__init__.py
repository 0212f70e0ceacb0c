"""For policy authors: load a folder, check it, run its tests, explain a refusal, compare two versions, lay files out.

Knows files, lines and columns, so that a finding has a place; reads a folder in `load` and `benchmarks` only. Adds no
rule to what `policy` decides. The service uses only `load` and the published schemas (policies/REFERENCE.md).
"""
