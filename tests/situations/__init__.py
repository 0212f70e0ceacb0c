"""What people see: a table of situations (`table.py`), and for each the text that is expected (`expected/`, to be read).

`python -m tests.situations` writes the texts anew; then read what has changed.
"""
