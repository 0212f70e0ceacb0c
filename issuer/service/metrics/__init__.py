"""Metrics: counts and times of all workers, the state of each worker, and the operator's view.

`counts.py` has the shared memory and a worker's counters, `state.py` a worker's state, and `expose.py` both for
Prometheus; `service/process/metrics_listener.py` serves them. For the operator's view, `limit_usage.py` asks the store,
`idle_rules.py` reads the audit file, `history.py` keeps recent counts, and `service/process/overview.py` puts them
together. Metrics never influence a decision, and text from strangers never becomes a label.
"""
