"""What an operator's Prometheus is told: counts and times of all workers, how each worker is, and where that is asked.

`counts.py` is the memory that the processes share, and what a worker counts there and at the ports of
the line, `state.py` says how a worker is, `expose.py` writes it all for Prometheus, and
`service/process/metrics_listener.py` is the process that answers. For the operator's view `limit_usage.py` asks the
store, `idle_rules.py` reads the audit, `history.py` remembers, and `service/process/overview.py` puts it together.
Nothing here decides anything, and nothing that a stranger sends becomes a label.
"""
