"""Every block between fences in every page is run, in order, or is listed with a reason (`listed.py`).

`blocks.py` reads the pages, `said.py` compares what is printed with what a page shows, `shell.py` runs commands, `story.py`
runs the blocks of a page in one folder, `stories.py` says which page is run in which world. CONTRIBUTING.md has
the form of a block.
"""
