"""For those who write policies: load a folder, check it, run the tests in it, lay it out, compare two versions.

Knows files, lines and columns, so that a finding has a place; reads a folder in `load` and `benchmarks` only. Adds no
rule of its own to what `policy` decides. Of the service, only loading and the published schemas come from here.
"""
