"""What the lint of result files asks of a profile: what an entry must have, and which faults its readers mind. Pure.

`target` is the form of the specification, `hub` what today's Hub and huggingface_hub take, `both` a file for either
(README.md has the rules in a table). A fault is an error where the readers of the profile refuse the file or lose a
part of it, else a warning. What no reader may be given, a secret or YAML that readers disagree about, is always one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from issuer.codes import Code
from issuer.results.entry import HUB_MEMBERS, TOKEN_MEMBERS, Profile

# A member of entries that only today's Hub knows.
HUB_ALONE = frozenset({"evaluation_framework"})
# Which spelling of the token the readers of a profile look for.
_SPELLINGS: Mapping[Profile, tuple[str, ...]] = {
    "target": TOKEN_MEMBERS[:1], "hub": TOKEN_MEMBERS[1:], "both": TOKEN_MEMBERS,
}  # fmt: skip


class Found(Struct, frozen=True):
    """One thing that is wrong with an entry, by its pointer in it."""

    code: Code
    pointer: str
    detail: str
    severity: Literal["error", "warning"] = "error"


def lacking(members: Mapping[str, Any], profile: Profile) -> Iterator[Found]:
    """Yield what an entry lacks: for every reader, for those of the profile, and for a token."""
    dataset = members.get("dataset")
    if "dataset" not in members:
        yield Found(Code.FILE_SCHEMA, "", "lacks `dataset`")
    if isinstance(dataset, Mapping) and "task_id" not in dataset:
        yield Found(Code.RESULT_UNBOUND, "/dataset", "lacks `dataset.task_id`")
    if profile != "target" and "value" not in members:
        yield Found(Code.RESULT_PROFILE, "", "lacks `value`, without which today's Hub and huggingface_hub fail")
    if "metrics" in members:
        yield from _unbound(members, profile)
    else:
        rule = "lacks `metrics`: a lone `value` names no metric, so this entry can never be verified"
        pointer = "/value" if "value" in members else ""
        rule += " (today's Hub takes it: --profile hub)" if pointer and profile == "target" else ""
        yield Found(Code.RESULT_UNBOUND, pointer, rule, "warning" if profile == "hub" else "error")
    yield from _spellings(members, profile)


def _unbound(members: Mapping[str, Any], profile: Profile) -> Iterator[Found]:
    signed = any(name in members for name in TOKEN_MEMBERS)
    severity: Literal["error", "warning"] = "error" if signed and profile != "hub" else "warning"
    dataset = members.get("dataset")
    if isinstance(dataset, Mapping) and "revision" not in dataset:
        yield Found(Code.RESULT_UNBOUND, "/dataset", "lacks `dataset.revision`, the benchmark's commit", severity)
    if "model_revision" not in members:
        yield Found(Code.RESULT_UNBOUND, "", "lacks `model_revision`, the model's commit", severity)
    if "framework" not in members:
        yield Found(Code.RESULT_UNBOUND, "", "lacks `framework`, with `name` and `version`", severity)


def _spellings(members: Mapping[str, Any], profile: Profile) -> Iterator[Found]:
    """Yield where the profile's readers look for a token and find none, though there is one."""
    there = [name for name in TOKEN_MEMBERS if name in members]
    for name in _SPELLINGS[profile] if there else ():
        if name not in there:
            rule = f"stands without `{name}`, where readers of the profile {profile} look for the token"
            yield Found(Code.RESULT_PROFILE, f"/{there[0]}", rule, "error" if profile == "both" else "warning")


def judged(found: Found, profile: Profile) -> Found:
    """Turn an error into a warning where today's Hub does not look: beyond its members, and behind the commit's."""
    member = found.pointer.partition("/")[2].partition("/")[0]
    minded = not member or (member in HUB_MEMBERS and found.pointer != "/dataset/revision")
    if profile != "hub" or found.code is Code.CLAIMS_SECRET or (minded and found.code is not Code.RESULT_VALUE):
        return found
    return replace(found, severity="warning")
