"""Answers of a faulty server: for `LocalProvider.answers`."""

from issuer.dev.provider import Exchange


def silent(exchange: Exchange) -> None:
    exchange.server.provider.closing.wait(60)


def dripping(exchange: Exchange) -> None:
    """Send a byte every 20 ms: each single read is quick."""
    exchange.send_response(200)
    exchange.send_header("Content-Length", "100000")
    exchange.end_headers()
    while not exchange.server.provider.closing.wait(0.02):
        exchange.wfile.write(b" ")
