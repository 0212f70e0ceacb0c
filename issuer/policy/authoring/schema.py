"""The JSON Schemas (2020-12) of policy files, `providers.yaml` and `stops.yaml`, for editors. Pure.

They are generated from the types that read the files, so the two cannot drift apart. A schema helps authors while they
write; only `issuer policy check` knows the rules between members, files and providers. Unions are written as
`if`/`then`: for an `anyOf`, a validator reports only that no branch fits, not which member is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from issuer.identity.profiles import PROFILES
from issuer.identity.table import ProviderEntry, ProvidersFile, judges
from issuer.policy import model, stops
from issuer.policy.authoring.suite import EXPECTABLE
from issuer.results.claims import REVISION

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_ID = "^[a-z0-9]+(-[a-z0-9]+)*$"
_DATE = {"format": "date"}
Schema = dict[str, Any]


def schemas() -> dict[str, bytes]:
    """Return the schemas by name (`policy`, `providers`, `stops`), as indented JSON with a final newline."""
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
    """Add descriptions to a type's schema, and rules that its Python type cannot express."""
    paragraphs = (" ".join(part.split()) for part in schema["description"].split("\n\n"))
    whole: Schema = {**_split(schema), "description": "\n\n".join(paragraphs)}
    members = {member: {**part, **MEMBERS[type_name].get(member, {})} for member, part in whole["properties"].items()}
    return {**whole, "properties": members, **RULES.get(type_name, {})}


# -- unions -----------------------------------------------------------------------------------------------------------


def _split(schema: Any) -> Any:
    """Rewrite every union in a schema, so that an error names the wrong member."""
    if isinstance(schema, list):
        return [_split(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: _split(part) for name, part in schema.items() if name != "anyOf"}
    return {**parts, **_union(_split(schema["anyOf"]))} if "anyOf" in schema else parts


def _union(branches: list[Schema]) -> Schema:
    """Return the schema of a union of scalars and at most one map: the kind of the value selects the branch."""
    maps = [branch for branch in branches if "$ref" in branch]
    scalars = [branch for branch in branches if "$ref" not in branch]
    if len(maps) > 1:
        raise TypeError("a union of two maps needs a member that tells them apart")
    if not maps:
        return _scalar(scalars)
    kinds = [*_kinds(scalars), "object"]
    return {"type": kinds, "if": {"type": "object"}, "then": maps[0], "else": _scalar(scalars)}


def _scalar(branches: list[Schema]) -> Schema:
    return branches[0] if len(branches) == 1 else {"type": _kinds(branches)}


def _kinds(branches: list[Schema]) -> list[str]:
    return [branch.get("type", "string") for branch in branches]


def _one_of_members(*groups: tuple[str, ...]) -> Schema:
    """Demand exactly one group of members: the first member of a group requires the others and excludes all else."""
    return {"minProperties": 1, "allOf": [_alone(*group) for group in groups]}


def _alone(first: str, *others: str) -> Schema:
    then = {"propertyNames": {"enum": [first, *others]}, **({"required": [*others]} if others else {})}
    return {"if": {"required": [first]}, "then": then}


# -- rules of a provider's profile ------------------------------------------------------------------------------------


def _by_profile() -> Schema:
    """Demand the members that a profile leaves to `providers.yaml`, and refuse those that it does not use."""
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


def _list_by_profile(member: str) -> str:
    lists = {name: getattr(profile, member) for name, profile in PROFILES.items()}
    return " ".join(f"{name}: {', '.join(claims)}." for name, claims in lists.items() if claims)


# -- descriptions for people ------------------------------------------------------------------------------------------


def _doc(description: str, *examples: object, **more: object) -> Schema:
    return {"description": description, **({"examples": list(examples)} if examples else {}), **more}


_GLOB = "In a glob only `*` is special: it matches any characters except `/`, `@` and `:`."
_THEN = "observe: the operator sees it. warn: the caller, too. throttle: a lower rate. quarantine: no admission."
_RATE = {
    "count": _doc("How many requests, on average."),
    "per_s": _doc("In how many seconds."),
    "burst": _doc("How many of them may come at once."),
}
_DEFINITIONS = {"propertyNames": {"pattern": "^[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+$"}, "additionalProperties": {
    "type": ["string", "array"], "pattern": f"^(any|{REVISION.pattern})$", "minItems": 1,
    "items": {"type": "string", "pattern": f"^({REVISION.pattern})$"},
}}  # fmt: skip
_RUN = {"model_repo": "org/model", "benchmark_repo": "openai/gsm8k", "task_id": "gsm8k"}

MEMBERS: Mapping[str, Mapping[str, Schema]] = {
    "Policy": {
        "version": _doc("The version of this language: 1."),
        "integration": _doc("The integration's id: the file's name without `.yaml`, and the token's `sub`.",
                             "inspect-ai", pattern=_ID),
        "mode": _doc("active: issues tokens. staged: judges and audits without tokens. suspended: refuses everything."),
        "contacts": _doc("Contacts for questions about this integration.", ["evals@example.org"]),
        "identities": _doc("The machine identities that may speak for the integration."),
        "grants": _doc("The results that the integration may have signed."),
        "token": _doc("The lifetime and the relying parties of verify tokens."),
        "limits": _doc("The rates of requests; omitted members have their defaults."),
        "abuse": _doc("Signs of cheating, and their consequences; omitted members have their defaults."),
        "disclose": _doc("The rules whose expected values a refused caller of this integration may see."),
        "public": _doc("true: anyone may read what a CI must send, at /integrations/{id}/requirements."),
        "tests": _doc("Cases with the expected decision. If one fails, the policy does not load."),
    },
    "Identity": {
        "id": _doc("The identity's id, unique in the file.", "evaluate-main", pattern=_ID),
        "provider": _doc("An id of providers.yaml.", *PROFILES),
        "pins": _doc("Immutable ids, quoted; all must be present and equal. The profiles demand: "
                      + _list_by_profile("pins"), {"repository_id": "700000001", "repository_owner_id": "600000001"}),
        "names": _doc("Readable names of ids: a difference only warns. " + _list_by_profile("names"),
                       {"repository": "example-org/evals"}),
        "require": _doc("Claims that must match: an exact value of the same type, or a matcher.",
                         {"ref": "refs/heads/main", "workflow_ref": {"glob": "org/evals/.github/workflows/*.yml@*"}}),
        "any_ref": _doc("true: jobs of any ref, environment and workflow may ask. Needs a `reason`."),
        "reason": _doc("Why any ref may ask.", "only reviewed commits reach the repository"),
        "expires": _doc("The identity is refused from 00:00 UTC of this day.", "2027-06-30", **_DATE),
    },
    "Matcher": {
        "any_of": _doc("One of these exact values, of the same type.", ["refs/heads/main", "refs/heads/release"]),
        "glob": _doc(f"A glob for the whole text. {_GLOB}", "refs/heads/release-*"),
        "regex": _doc("A regular expression for the whole text. Needs a `reason`.", "v[0-9]+"),
        "reason": _doc("Why `any_of` and `glob` are not enough."),
        "contains_all": _doc("Words that a space-separated text must have, in any order.", ["results:write"]),
        "absent": _doc("true: the claim must be absent."),
    },
    "Grants": {
        "frameworks": _doc("The frameworks, by exact name.", [{"name": "inspect-ai", "versions": ">=0.3.100,<0.4"}]),
        "benchmarks": _doc(f"Globs of benchmark repositories. {_GLOB}", ["openai/gsm8k", "cais/*"]),
        "models": _doc(f"Globs of model repositories. {_GLOB}", ["*/*"]),
        "tasks": _doc(f"Globs of task ids. {_GLOB}", ["gsm8k", "mmlu_*"]),
        "metrics": _doc("Globs of metric ids, or maps with bounds of the value.",
                         [{"id": "accuracy", "min": 0, "max": 1}]),
        "deny": _doc("Results that are refused although a list above grants them."),
        "definitions": _doc("By benchmark repository, the commits whose eval.yaml may decide: one, a list, or `any`.",
                             {"openai/gsm8k": "5503434ddd753f426f4b38109466949a1217c2bb"}, **_DEFINITIONS),
        "registered_only": _doc("true: an eval.yaml in benchmarks/ must define benchmark, task and metrics."),
        "command": _doc("required: a run without `framework.command` is refused."),
    },
    "FrameworkGrant": {
        "name": _doc("The framework's exact name.", "inspect-ai"),
        "versions": _doc("A PEP 440 range. Default: every version passes.", ">=0.3.100,<0.4"),
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
        "audiences": _doc("The relying parties. A request that names none gets the first.",
                           ["https://huggingface.co"]),
        "ttl_s": _doc("The lifetime of a verify token, in seconds."),
    },
    "Limits": {
        "identity": _doc("The rate of one identity."),
        "integration": _doc("The rate of all identities of the file together."),
        "refusals": _doc("The rate of an identity's refused requests; above it the identity is quarantined."),
        "quarantine_s": _doc("How long a quarantine lasts, in seconds."),
    },
    "Rate": _RATE,
    "Abuse": {
        "attempts": _doc("A signal for score shopping."),
        "artifact": _doc("A signal for numbers that were edited after the run."),
        "twins": _doc("A signal for numbers that were copied from another model."),
        "spread": _doc("A signal for an identity that is stolen or lent."),
        "throttle": _doc("An additional rate for a throttled identity."),
        "quarantine_s": _doc("How long a quarantine by a signal lasts, in seconds."),
    },
    "Attempts": {
        "distinct": _doc("How many different sets of metric values of one run key give no signal."),
        "per_days": _doc("For how many days a set counts."),
        "ignore": _doc(f"Globs of metric ids that do not count. {_GLOB}", ["*_per_second", "*_ms"]),
        "then": _doc(_THEN),
    },
    "Artifact": {
        "distinct": _doc("How many such sets with the same evidence file give no signal."),
        "then": _doc(_THEN),
    },
    "Twins": {
        "values": _doc("How many metric values must be equal for a signal."),
        "per_days": _doc("For how many days later results are compared with a result."),
        "then": _doc("observe: only the operator sees it, because models that share weights have equal values."),
    },
    "Spread": {
        "owners_a_day": _doc("The most model owners in a day (UTC): the part of `model_repo` before the slash."),
        "owners_a_run": _doc("The most model owners in one CI run."),
        "tokens_a_day": _doc("The most tokens in a day (UTC)."),
        "tokens_a_run": _doc("The most tokens in one CI run."),
        "then": _doc(_THEN),
    },
    "Throttle": {
        **_RATE,
        "for_s": _doc("How long a throttle lasts after the last signal, in seconds."),
    },
    "PolicyTest": {
        "name": _doc("A name, unique in the file.", "the main branch may have GSM8K signed"),
        "expect": _doc("granted, or the code of the refusal.", "granted", "policy.benchmark", enum=[*EXPECTABLE]),
        "provider": _doc("The id of the token's provider."),
        "identity": _doc("The claims of the identity token.", {"repository_id": "700000001"}),
        "run": _doc("The run claims that the case needs.", _RUN),
        "claims_from": _doc("The name of an earlier test. Its provider, identity and run are used."),
        "override": _doc("Changes to the test that `claims_from` names."),
        "counts": _doc("The counts that the admission would have of the identity.", {"attempts": 6}),
        "signals": _doc("All signals that follow from the counts.", {"attempts": "warn"}),
        "date": _doc("The day of the request.", "2027-06-30", **_DATE),
    },
    "Counts": {
        "attempts": _doc("How many different sets of metric values the run key has, with this one; 64 means more."),
        "is_new": _doc("false: this set was signed before."),
        "artifact": _doc("How many of the sets share an evidence file with this one; 0 if that is not new."),
        "twins": _doc("true: the same values were signed for another model repository."),
        "owners_a_day": _doc("Model owners of the day."),
        "owners_a_run": _doc("Model owners of the CI run; 0 if its provider names no run."),
        "tokens_a_day": _doc("Tokens of the day."),
        "tokens_a_run": _doc("Tokens of the CI run; 0 if its provider names no run."),
    },
    "ExpectedSignals": {name: _doc("The consequence, if the rule is crossed.")
                        for name in model.ExpectedSignals.__struct_fields__},
    "Override": {
        "identity": _doc("Claims to set; null removes a claim.", {"ref": "refs/heads/other"}),
        "run": _doc("Members of the run to set; null removes a member.", {"task_id": "other"}),
    },
    "ProvidersFile": {
        "version": _doc("The version of this language: 1."),
        "providers": _doc("The providers, by an id of your choice.", {"github-actions": {"profile": "github-actions"}},
                           propertyNames={"pattern": _ID}),
    },
    "ProviderEntry": {
        "profile": _doc("The kind of provider, with defaults for omitted members.", enum=sorted(PROFILES)),
        "issuer": _doc("The token's `iss`, compared byte for byte.", "https://id.example.org"),
        "audience": _doc("The token's only `aud`, compared byte for byte. Default: this service's URL."),
        "algorithms": _doc("Asymmetric JWS algorithms.", ["RS256"]),
        "max_lifetime_s": _doc("The longest `exp - iat`, in seconds."),
        "max_age_s": _doc("How long after its `iat` a token is accepted, in seconds."),
        "uses": _doc("How many different requests one token may make.", "single", {"bounded": 10}),
        "keys": _doc("The source of the keys. Default: discovery.", {"jwks_uri": "https://id.example.org/keys"}),
        "events": _doc("The events that may start a job. " + _list_by_profile("events"), ["push", "workflow_dispatch"]),
        "introspection": _doc("How the service asks about an opaque token."),
    },
    "Introspection": {
        "client_id": _doc("This service's client id at the provider.", "eval-issuer"),
        "client_secret_file": _doc("The path of the file with the client's secret.", "/run/secrets/introspection"),
        "endpoint": _doc("The endpoint's URL. Default: discovery.", "https://id.example.org/oauth/introspect"),
        "token_prefix": _doc("The prefix of all opaque tokens of the provider.", "acme_"),
    },
    "StopsFile": {
        "version": _doc("The version of this language: 1."),
        "stops": _doc("The stops; an empty list for none."),
    },
    "Stop": {
        "what": _doc("everything, provider:ID, account:PROVIDER/ACCOUNT, integration:ID or identity:INTEGRATION/ID.",
                      "integration:inspect-ai", pattern=f"^(?:{stops.WHAT})$"),
        "reason": _doc("The reason, for operators. No caller sees it.", "the CI's key is in a public log"),
        "since": _doc("The start, in UTC.", "2026-11-21T09:00:00Z", pattern=f"^{stops.TIME}$"),
        "until": _doc("The end, in UTC. Default: until an operator lifts the stop.", "2026-11-22T09:00:00Z",
                       pattern=f"^{stops.TIME}$"),
    },
    "Bounded": {"bounded": _doc("How many requests, from 1 to 1000.")},
    "KeySource": {
        "jwks_uri": _doc("The URL of a JWK set."),
        "static": _doc("Public keys as JWKs, each with its own `kid`."),
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
