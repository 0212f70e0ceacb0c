"""The edge: bytes of HTTP in, bytes of HTTP out (RFC 9110, 9112; problem documents of RFC 9457).

Knows framing, deadlines, sizes, how many requests may be under way, and how an answer is written. Decides nothing: what
a request means and whether it is granted is the line's (`issuance`). deploy/README.md lists the bounds.
"""
