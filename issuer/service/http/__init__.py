"""The HTTP edge of the service: it parses requests and writes answers (RFC 9110, 9112; problem documents of RFC 9457).

It knows framing, deadlines, sizes and how many requests may be in progress. `issuance` decides what a request means and
whether it is granted. deploy/README.md lists the bounds.
"""
