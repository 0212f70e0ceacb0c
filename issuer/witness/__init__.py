"""A small witness for anyone's logs (c2sp.org/tlog-witness): it cosigns what extends what it has cosigned before.

`witness.py` decides, `state.py` remembers, `app.py` speaks HTTP, `folder.py` has what belongs to one witness. Knows
nothing of tokens: the logs may be anybody's, and it is worth something to them only where their operator is another.
"""
