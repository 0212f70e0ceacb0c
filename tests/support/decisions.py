"""Events for tests of the audit's file, made without deciding anything."""

from typing import Any

from issuer.audit.events import CallerRead, Decision
from issuer.codes import Code


def decision(name: str | int = "r", **members: Any) -> Decision:
    """Return a grant that was explained, with this request id and with changed members."""
    caller = CallerRead("github", "https://ci.example", {"repository_id": "7"}, ())
    given: dict[str, Any] = {"verdict": "granted", "integration": "inspect-ai", "identity": "main", **members}
    return Decision(1_795_251_600, str(name), "/tokens", caller, **given)


def refusal(code: Code = Code.POLICY_MODEL, name: str | int = "r", **members: Any) -> Decision:
    return decision(name, verdict="refused", code=str(code), **members)
