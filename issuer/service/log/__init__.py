"""The transparency log: the database and the process that it is written by, and the way to it for workers.

One sequencer process a host holds the log's key and numbers the leaves (`service/log/sequencer/sequencer.py`,
`service/log/sequencer/process.py`); workers hand it theirs over a socket (`service/log/client.py`). SQLite or
PostgreSQL keeps the tree; `service/log/sequencer/records.py` keeps its newest head elsewhere.
"""
