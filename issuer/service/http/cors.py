"""Who may read an answer from a web page of another origin (the Fetch standard, 3.3): everybody, of what is public.

Nobody, of /tokens: those who ask there are machines that hold a credential, and a page that holds one has stolen it. No
answer allows credentials, so a browser sends neither cookies nor client certificates with such a question.
"""

from __future__ import annotations

from typing import TypeVar

from issuer.service.http.answer import Answer

AnswerT = TypeVar("AnswerT", bound=Answer)
_ANY_ORIGIN = (b"access-control-allow-origin", b"*")
# A page may read these beside the few that it always may; of the times at which it may ask again it must know.
_EXPOSED = (b"access-control-expose-headers", b"ETag, Retry-After, X-Request-Id")


def readable(answer: AnswerT) -> AnswerT:
    """Let pages of every origin read an answer that was just made."""
    answer.headers = (*answer.headers, _ANY_ORIGIN, _EXPOSED)
    return answer


def preflight(method: str) -> Answer:
    """Write the answer to a browser that asks whether a page may send JSON by this method."""
    asked = {
        "access-control-allow-methods": method,
        "access-control-allow-headers": "Content-Type",
        "access-control-max-age": "86400",  # a day
    }
    return readable(Answer(204, tuple((name.encode(), value.encode()) for name, value in asked.items()), b""))
