"""The audit file: its events, their chains, and a reader with a search. For the service and the operator's commands."""
