"""JSON Schema (2020-12) of policy files, of `providers.yaml` and of `stops.yaml`, for editors. Pure.

Made from the types that read the files, so that the two cannot drift apart. A schema helps while writing and does not
judge: `issuer policy check` knows the rules between members, files and providers. Unions are written as `if`/`then`,
because of an `anyOf` a validator only says that no branch fits, and not which member is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from issuer.identity.profiles import PROFILES
from issuer.identity.table import ProviderEntry, ProvidersFile, judges
from issuer.policy import model, stops
from issuer.policy.authoring.suite import EXPECTABLE

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ID = "^[a-z0-9]+(-[a-z0-9]+)*$"
_DATE = {"format": "date"}
Schema = dict[str, Any]


def schemas() -> dict[str, bytes]:
    """Return the schema documents by name (`policy`, `providers`, `stops`), as indented JSON with a final newline."""
    documents = {
        "policy": _document("policy", model.Policy, "An integration's policy file"),
        "providers": _document("providers", ProvidersFile, "providers.yaml: the table of identity providers"),
        "stops": _document("stops", stops.StopsFile, "stops.yaml: the emergency stops"),
    }
    return {name: msgspec.json.format(msgspec.json.encode(value)) + b"\n" for name, value in documents.items()}


def _document(name: str, kind: type, title: str) -> Schema:
    _, types = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    schemas = {type_name: _annotate(type_name, schema) for type_name, schema in types.items()}
    root = schemas.pop(kind.__name__)
    return {
        "$schema": DIALECT,
        "$id": f"urn:eval-token-issuer:schema:{name}:1",
        **root,
        "title": title,
        "$defs": dict(sorted(schemas.items())),
    }


def _annotate(type_name: str, schema: Schema) -> Schema:
    """Add descriptions to a type's schema, and the rules that its Python type cannot express."""
    whole: Schema = {**_split(schema), "description": _paragraphs(schema["description"])}
    members = {member: {**part, **MEMBERS[type_name].get(member, {})} for member, part in whole["properties"].items()}
    return {**whole, "properties": members, **RULES.get(type_name, {})}


def _paragraphs(docstring: str) -> str:
    """Undo a docstring's line breaks and its indentation."""
    return "\n\n".join(" ".join(part.split()) for part in docstring.split("\n\n"))


# -- unions -----------------------------------------------------------------------------------------------------------


def _split(schema: Any) -> Any:
    """Rewrite every union below, so that an error is about the member that is wrong."""
    if isinstance(schema, list):
        return [_split(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: _split(part) for name, part in schema.items() if name != "anyOf"}
    return {**parts, **_union(_split(schema["anyOf"]))} if "anyOf" in schema else parts


def _union(branches: list[Schema]) -> Schema:
    """Write a union of scalars and at most one map: by the kind of value present, what it must be."""
    maps = [branch for branch in branches if "$ref" in branch]
    scalars = [branch for branch in branches if "$ref" not in branch]
    if len(maps) > 1:
        raise TypeError("a union of two maps needs a member that tells them apart")
    if not maps:
        return _scalar(scalars)
    kinds = [*_kinds(scalars), "object"]
    return {"type": kinds, "if": {"type": "object"}, "then": maps[0], "else": _scalar(scalars)}


def _scalar(branches: list[Schema]) -> Schema:
    if len(branches) == 1:
        return branches[0]
    return {"type": _kinds(branches)}


def _kinds(branches: list[Schema]) -> list[str]:
    return [branch.get("type", "string") for branch in branches]


def _one_of_members(*groups: tuple[str, ...]) -> Schema:
    """Demand one group of members: with its first member come all others of the group, and no further ones."""
    return {"minProperties": 1, "allOf": [_alone(*group) for group in groups]}


def _alone(first: str, *others: str) -> Schema:
    then = {"propertyNames": {"enum": [first, *others]}, **({"required": [*others]} if others else {})}
    return {"if": {"required": [first]}, "then": then}


# -- what depends on a provider's profile -----------------------------------------------------------------------------


def _by_profile() -> Schema:
    """Demand what a profile leaves to `providers.yaml`, and refuse what its credentials are not judged by."""
    demanded = {
        member: [
            name for name, profile in PROFILES.items() if judges(profile, member) and not getattr(profile, member, None)
        ]
        for member in ("issuer", "algorithms", "max_lifetime_s", "introspection")
    }
    refused = {
        member: [name for name, profile in PROFILES.items() if not judges(profile, member)]
        for member in ProviderEntry.__struct_fields__[1:]
    }
    return {
        "allOf": [
            *({"if": _profile_in(names), "then": {"required": [member]}} for member, names in demanded.items()),
            *({"if": _profile_in(names), "then": {"properties": {member: False}}} for member, names in refused.items()),
        ]
    }


def _profile_in(names: Iterable[str]) -> Schema:
    return {"properties": {"profile": {"enum": sorted(names)}}, "required": ["profile"]}


def _list_by_profile(claims: str) -> str:
    lists = {name: getattr(profile, claims) for name, profile in PROFILES.items()}
    return " ".join(f"{name}: {', '.join(found)}." for name, found in lists.items() if found)


# -- descriptions for people ------------------------------------------------------------------------------------------


def _doc(description: str, *examples: object, **more: object) -> Schema:
    return {"description": description, **({"examples": list(examples)} if examples else {}), **more}


_GLOB = "In a glob only `*` is special: any run of characters but `/`, `@` and `:`."
_THEN = "observe: the operator is told. warn: the caller, too. throttle: a lower rate. quarantine: no admission."
_RUN = {"model_repo": "org/model", "benchmark_repo": "openai/gsm8k", "task_id": "gsm8k"}

MEMBERS: Mapping[str, Mapping[str, Schema]] = {
    "Policy": {
        "version": _doc("The version of this language: 1."),
        "integration": _doc("The integration's id: the file's name without `.yaml`, and the token's `sub`.",
                             "inspect-ai", pattern=_ID),
        "mode": _doc("active: issues. staged: judged and audited, never issued. suspended: refuses everything."),
        "contacts": _doc("Whom to ask about this integration; for people.", ["evals@example.org"]),
        "identities": _doc("The machine identities that may speak for the integration."),
        "grants": _doc("What the integration may have signed."),
        "token": _doc("How long verify tokens live, and for whom they are."),
        "limits": _doc("How much the integration may ask for; what is left out has its default."),
        "abuse": _doc("What counts as a sign of cheating, and what follows; what is left out has its default."),
        "disclose": _doc("Whose expected values a refused caller of this integration may see."),
        "public": _doc("true: anyone may read what a CI must send, at /integrations/{id}/requirements."),
        "tests": _doc("Cases that the policy must decide as they say. Where one fails, the policy does not load."),
    },
    "Identity": {
        "id": _doc("This identity's id, once in the file.", "evaluate-main", pattern=_ID),
        "provider": _doc("An id of providers.yaml.", *PROFILES),
        "pins": _doc("Immutable ids, quoted; every one must be there and equal. A provider's profile demands: "
                      + _list_by_profile("pins"), {"repository_id": "700000001", "repository_owner_id": "600000001"}),
        "names": _doc("Readable twins of ids: a difference warns and never decides. " + _list_by_profile("names"),
                       {"repository": "example-org/evals"}),
        "require": _doc("Claims that must match: an exact value of the same type, or a matcher.",
                         {"ref": "refs/heads/main", "workflow_ref": {"glob": "org/evals/.github/workflows/*.yml@*"}}),
        "any_ref": _doc("true: jobs of any ref, environment and workflow may ask. It needs a `reason`."),
        "reason": _doc("Why any ref may ask.", "only reviewed commits reach the repository"),
        "expires": _doc("From 00:00 UTC of this day on the identity is refused.", "2027-06-30", **_DATE),
    },
    "Matcher": {
        "any_of": _doc("One of these exact values, of the same type.", ["refs/heads/main", "refs/heads/release"]),
        "glob": _doc(f"A pattern for the whole text. {_GLOB}", "refs/heads/release-*"),
        "regex": _doc("A regular expression for the whole text. It needs a `reason`.", "v[0-9]+"),
        "reason": _doc("Why a regular expression, and neither `any_of` nor `glob`."),
        "contains_all": _doc("Words that a space-separated text must hold, in any order.", ["results:write"]),
        "absent": _doc("true: the claim must not be there."),
    },
    "Grants": {
        "frameworks": _doc("The frameworks, by exact name.", [{"name": "inspect-ai", "versions": ">=0.3.100,<0.4"}]),
        "benchmarks": _doc(f"Globs of benchmark repositories. {_GLOB}", ["openai/gsm8k", "cais/*"]),
        "models": _doc(f"Globs of model repositories. {_GLOB}", ["*/*"]),
        "tasks": _doc(f"Globs of task ids. {_GLOB}", ["gsm8k", "mmlu_*"]),
        "metrics": _doc("Globs of metric ids, or maps with bounds of the value.",
                         [{"id": "accuracy", "min": 0, "max": 1}]),
        "deny": _doc("What is refused although a list above grants it."),
        "registered_only": _doc("true: benchmark, task and metrics must be those of an eval.yaml in benchmarks/."),
        "command": _doc("required: a run without `framework.command` is refused."),
    },
    "FrameworkGrant": {
        "name": _doc("The framework's exact name.", "inspect-ai"),
        "versions": _doc("A PEP 440 range; left out, every version passes.", ">=0.3.100,<0.4"),
    },
    "MetricGrant": {
        "id": _doc(f"A glob of metric ids. {_GLOB}", "accuracy"),
        "min": _doc("The smallest value, included."),
        "max": _doc("The largest value, included."),
    },
    "Deny": {
        "benchmarks": _doc("Globs of benchmark repositories."),
        "models": _doc("Globs of model repositories."),
        "tasks": _doc("Globs of task ids."),
    },
    "TokenRules": {
        "audiences": _doc("The relying parties; the first is meant where a request names none.",
                           ["https://huggingface.co"]),
        "ttl_s": _doc("The life of a verify token, in seconds."),
    },
    "Limits": {
        "identity": _doc("Of one identity."),
        "integration": _doc("Of all identities of the file together."),
        "refusals": _doc("Of an identity's refused requests; above it the identity is quarantined."),
        "quarantine_s": _doc("How long a quarantine lasts, in seconds."),
    },
    "Rate": {
        "count": _doc("How many requests, on average."),
        "per_s": _doc("In how many seconds."),
        "burst": _doc("How many of them may come at once."),
    },
    "Abuse": {
        "attempts": _doc("Score shopping."),
        "artifact": _doc("Numbers that were edited after the run."),
        "twins": _doc("Numbers that were copied from another model."),
        "spread": _doc("An identity that is stolen, or lent."),
        "throttle": _doc("The rate of an identity that is throttled, beside its own."),
        "quarantine_s": _doc("How long a quarantine lasts that a signal has begun, in seconds."),
    },
    "Attempts": {
        "distinct": _doc("The most sets of metric values of one run key that say nothing."),
        "per_days": _doc("For how many days a set is counted."),
        "ignore": _doc(f"Globs of metric ids that do not count. {_GLOB}", ["*_per_second", "*_ms"]),
        "then": _doc(_THEN),
    },
    "Artifact": {
        "distinct": _doc("The most sets of metric values of one run key, with one evidence file, that say nothing."),
        "then": _doc(_THEN),
    },
    "Twins": {
        "values": _doc("How many metric values are all equal, at the least."),
        "per_days": _doc("For how many days a result is compared with."),
        "then": _doc("observe: the operator is told. Never more: models that share weights have equal values."),
    },
    "Spread": {
        "owners_a_day": _doc("The most model owners in a day (UTC): the part of `model_repo` before the slash."),
        "owners_a_run": _doc("The most model owners in one CI run."),
        "tokens_a_day": _doc("The most tokens in a day (UTC)."),
        "tokens_a_run": _doc("The most tokens in one CI run."),
        "then": _doc(_THEN),
    },
    "Throttle": {
        "count": _doc("How many requests, on average."),
        "per_s": _doc("In how many seconds."),
        "burst": _doc("How many of them may come at once."),
        "for_s": _doc("For how long after the last signal, in seconds."),
    },
    "PolicyTest": {
        "name": _doc("What the case shows.", "the main branch may have GSM8K signed"),
        "expect": _doc("granted, or the code of the refusal.", "granted", "policy.benchmark", enum=[*EXPECTABLE]),
        "provider": _doc("The id of the provider whose token it is."),
        "identity": _doc("The claims of the identity token.", {"repository_id": "700000001"}),
        "run": _doc("As much of the run claims as the case is about.", _RUN),
        "claims_from": _doc("The name of an earlier test, to start from its provider, identity and run."),
        "override": _doc("What is different from the test that `claims_from` names."),
        "counts": _doc("What the admission would have counted of the identity.", {"attempts": 6}),
        "signals": _doc("What follows from the counts, exactly.", {"attempts": "warn"}),
        "date": _doc("The day of the request.", "2027-06-30", **_DATE),
    },
    "Counts": {
        "attempts": _doc("How many different sets of metric values of this run key, with this one; 64 for more."),
        "is_new": _doc("false: this set was signed before."),
        "artifact": _doc("How many of the sets have an evidence file of this one; 0 where nothing of that is new."),
        "twins": _doc("true: the same values were signed for another model repository."),
        "owners_a_day": _doc("Model owners of the day."),
        "owners_a_run": _doc("Model owners of the CI run; 0 where its provider names none."),
        "tokens_a_day": _doc("Tokens of the day."),
        "tokens_a_run": _doc("Tokens of the CI run; 0 where its provider names none."),
    },
    "ExpectedSignals": {name: _doc("What follows, where the rule is crossed.")
                        for name in model.ExpectedSignals.__struct_fields__},
    "Override": {
        "identity": _doc("Claims to set; null takes one away.", {"ref": "refs/heads/other"}),
        "run": _doc("Members of the run to set; null takes one away.", {"task_id": "other"}),
    },
    "ProvidersFile": {
        "version": _doc("The version of this language: 1."),
        "providers": _doc("The providers, by an id of your choice.", {"github-actions": {"profile": "github-actions"}},
                           propertyNames={"pattern": _ID}),
    },
    "ProviderEntry": {
        "profile": _doc("The kind of provider, which fills in what is left out here.", enum=sorted(PROFILES)),
        "issuer": _doc("The token's `iss`, compared byte for byte.", "https://id.example.org"),
        "audience": _doc("The token's only `aud`, compared byte for byte; left out, this service's URL."),
        "algorithms": _doc("Asymmetric JWS algorithms.", ["RS256"]),
        "max_lifetime_s": _doc("The longest `exp - iat`, in seconds."),
        "max_age_s": _doc("How long after its `iat` a token is still taken, in seconds."),
        "uses": _doc("How many different requests one token may make.", "single", {"bounded": 10}),
        "keys": _doc("Where the keys are, when not by discovery.", {"jwks_uri": "https://id.example.org/keys"}),
        "events": _doc("What may have started a job. " + _list_by_profile("events"), ["push", "workflow_dispatch"]),
        "introspection": _doc("How to ask about an opaque token."),
    },
    "Introspection": {
        "client_id": _doc("The client that this service is at the provider.", "eval-issuer"),
        "client_secret_file": _doc("The path of the file with the client's secret.", "/run/secrets/introspection"),
        "endpoint": _doc("The URL to ask at; left out, it is discovered.", "https://id.example.org/oauth/introspect"),
        "token_prefix": _doc("How each of the provider's opaque tokens begins.", "acme_"),
    },
    "StopsFile": {
        "version": _doc("The version of this language: 1."),
        "stops": _doc("The stops; none is an empty list."),
    },
    "Stop": {
        "what": _doc("everything, provider:ID, account:PROVIDER/ACCOUNT, integration:ID or identity:INTEGRATION/ID.",
                      "integration:inspect-ai", pattern=f"^(?:{stops.WHAT})$"),
        "reason": _doc("Why; for the operators. No caller sees it.", "the CI's key is in a public log"),
        "since": _doc("From when on, in UTC.", "2026-11-21T09:00:00Z", pattern=f"^{stops.TIME}$"),
        "until": _doc("Until when, in UTC; left out, until it is lifted.", "2026-11-22T09:00:00Z",
                       pattern=f"^{stops.TIME}$"),
    },
    "Bounded": {"bounded": _doc("How many, from 1 to 1000.")},
    "KeySource": {
        "jwks_uri": _doc("The URL of a JWK set."),
        "static": _doc("Public keys as JWKs, each with a `kid` of its own."),
    },
}  # fmt: skip
RULES: Mapping[str, Schema] = {
    "Identity": {"dependentRequired": {"any_ref": ["reason"], "reason": ["any_ref"]}},
    "Matcher": _one_of_members(
        ("any_of",), ("glob",), ("regex", "reason"), ("reason", "regex"), ("contains_all",), ("absent",)
    ),
    "KeySource": _one_of_members(("jwks_uri",), ("static",)),
    "ProviderEntry": _by_profile(),
}
