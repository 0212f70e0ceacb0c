"""The transparency log: the database and the process that it is written by, and the way to it for workers.

One sequencer process a host holds the log's key and numbers the leaves (`sequencer.py`, `process.py`); workers hand it
theirs over a socket (`client.py`). SQLite or PostgreSQL keeps the tree; `records.py` keeps its newest head elsewhere.
"""
