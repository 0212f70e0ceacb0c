"""The line (identify, judge, issue): the steps from one request's credential to its signed tokens (contract section 5).

`ports` declares what the steps need from outside, and a room of `service` implements each port. The steps do not know
HTTP, Redis, key files or a clock: callers pass the time and a fresh `jti`. CONTRACT.md explains the files.
"""
