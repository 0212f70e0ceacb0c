"""The transparency log: its database, the process that appends to it, its witnesses, and the workers' client.

On each host, one sequencer process has the log's key and numbers the leaves (`sequencer/`). Workers send it leaves over
a socket (`client.py`). SQLite or PostgreSQL keeps the tree (`database/`), and `sequencer/records.py` keeps the newest
checkpoint elsewhere. `witnesses/` asks witnesses to cosign checkpoints.
"""
