"""Commands for callers: check, doctor, token request, token inspect and submit."""
