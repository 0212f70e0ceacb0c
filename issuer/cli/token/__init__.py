"""Commands for callers: check, request, submit, inspect."""
