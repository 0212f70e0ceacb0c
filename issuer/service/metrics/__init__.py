"""What an operator's Prometheus is told: counts and times of all workers, how each worker is, and where that is asked.

`board.py` is the memory that the processes share, `counts.py` what a worker counts there, `timed.py` counts at the
ports of the line, `state.py` says how a worker is, `expose.py` writes it all for Prometheus, `listener.py` is the
process that answers. For the operator's view `held.py` asks the store, `unmatched.py` reads the audit, `history.py`
remembers, and `overview.py` puts it together. Nothing here decides anything, and nothing that a stranger sends becomes
a label.
"""
