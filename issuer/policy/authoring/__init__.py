"""The tools of policy authors: load a folder, check it, test it, explain a refusal, plan a change, format files.

It knows files, lines and columns, so every finding has a place. Only `load` and `benchmarks` read files. `policy` alone
decides. The service uses only `load`, `stops` and the published schemas (policies/REFERENCE.md).
"""
