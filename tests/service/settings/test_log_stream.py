"""The log stream: complete lines of JSON, for any event."""

import json
import socket
import subprocess
import sys

LOGGING = r"""
import logging, structlog
from issuer.service.settings.log_stream import configure_logging
configure_logging()
log = structlog.get_logger("issuer")
log.info("plain", code="x", jti=["a"], ms=1.5)
log.warning("half a pair", path="/tmp/\udcff")
log.error("an object", thing=object)
log.debug("too small a thing")
try:
    in_a_local_variable = "s" + "ecret"
    raise RuntimeError("raised")
except RuntimeError as error:
    log.error("traced", exc_info=error)
logging.getLogger("library").warning("a library's")
"""


def packets() -> list[bytes]:
    """Return what each write of a process to its log stream held: a datagram socket keeps them apart."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        assert subprocess.run([sys.executable, "-c", LOGGING], stderr=theirs.fileno(), check=False).returncode == 0
        ours.setblocking(False)
        found = []
        while True:
            try:
                found.append(ours.recv(65536))
            except BlockingIOError:
                return found


def test_every_event_is_one_write_of_one_line_of_json() -> None:
    lines = packets()
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    events = [json.loads(line) for line in lines]
    assert [event["event"] for event in events] == ["plain", "half a pair", "an object", "traced", "a library's"]
    assert all(event["timestamp"].endswith("Z") for event in events)
    assert [event.get("level") for event in events[:4]] == ["info", "warning", "error", "error"]
    assert (events[0]["jti"], events[0]["ms"]) == (["a"], 1.5)
    assert events[1]["path"] == "/tmp/\udcff"
    assert events[2]["thing"] == repr(object)
    assert events[3]["exception"][0]["exc_value"] == "raised"
    assert b"secret" not in b"".join(lines)
