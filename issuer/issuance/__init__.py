"""THE LINE: one request from its credential to signed tokens, in the order of contract section 5.

Knows the steps and, in `ports`, what they need of the world. Does not know HTTP, Redis, key files or a clock: a room of
`service` implements each port, and the time and a fresh `jti` are arguments. CONTRACT.md has the way through the files.
"""
