"""The JSON Schemas for editors: made from the types, committed, and clear about what is wrong."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from issuer.formats.strict_yaml import load as load_yaml
from issuer.identity.table import ProvidersFile
from issuer.policy.authoring.load import check_policies
from issuer.policy.authoring.schema import MEMBERS, schemas
from issuer.policy.model import Policy
from issuer.policy.stops import StopsFile
from tests.support.policies import ISSUER_URL, NOW, POLICY, PROVIDERS, REUSABLE, changed, write
from tests.support.shared import ROOT, examples

POLICIES = ROOT / "policies"
FOLDER = POLICIES / "schema"
DOCUMENTS = {name: json.loads(raw) for name, raw in schemas().items()}
KINDS: dict[str, type] = {"policy": Policy, "providers": ProvidersFile, "stops": StopsFile}


def faults(schema: Any, value: Any) -> set[tuple[str, str]]:
    """Return (place, message) pairs. None has alternatives: an editor would only show that no alternative fits."""
    errors = list(Draft202012Validator(schema).iter_errors(value))
    assert not [error for error in errors if error.context]
    return {(error.json_path, error.message) for error in errors}


def value_of(text: str) -> Any:
    return load_yaml(text.encode(), "x.yaml", bare_dates=lambda _: True).value


def test_the_committed_schemas_are_those_of_the_types_and_samples_name_them() -> None:
    """Anew: `issuer policy schema NAME > policies/schema/NAME.json`."""
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.json" for name in DOCUMENTS}
    assert {path.stem: path.read_bytes() for path in FOLDER.iterdir()} == schemas()
    for path in POLICIES.glob("*.yaml"):
        name = "providers" if path.stem == "providers" else "policy"
        assert path.read_text("utf-8").startswith(f"# yaml-language-server: $schema=schema/{name}.json\n"), path


def test_every_member_of_every_type_is_explained_and_no_other() -> None:
    names = {kind.__name__ for kind in KINDS.values()}
    for name, document in DOCUMENTS.items():
        for type_name, schema in {KINDS[name].__name__: document, **document["$defs"]}.items():
            assert schema["properties"].keys() == MEMBERS[type_name].keys(), type_name
            assert all(member["description"] for member in schema["properties"].values()), type_name
            assert schema["title"]
            assert schema["description"]
            assert "\n  " not in schema["description"]
            names.add(type_name)
    assert MEMBERS.keys() == names


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from nodes(part)


def test_a_schema_is_one_of_2020_12_without_unions_and_its_examples_are_good() -> None:
    """An error of a union would only say that no alternative fits. An example is valid by the schema of its member."""
    for name, document in DOCUMENTS.items():
        Draft202012Validator.check_schema(document)
        assert document["$schema"].endswith("2020-12/schema"), name
        assert not [node for node in nodes(document) if {"anyOf", "oneOf", "discriminator"} & node.keys()]
        given = [
            (part, example)
            for schema in (document, *document["$defs"].values())
            for part in schema["properties"].values()
            for example in part.get("examples", [])
        ]
        assert len(given) > 3, name
        inside = {"$schema": document["$schema"], "$defs": document["$defs"]}
        assert [example for part, example in given if faults({**inside, **part}, example)] == []
    assert len({document["$id"] for document in DOCUMENTS.values()}) == len(DOCUMENTS)


def test_the_samples_and_the_reference_s_examples_are_good(tmp_path: Path) -> None:
    pages = "".join((POLICIES / name).read_text("utf-8") for name in ("README.md", "REFERENCE.md"))
    examples = re.findall(r"```yaml\n# ([a-z-]+\.yaml)\n(.*?)```", pages, re.S)
    assert len(examples) > 1
    for name, text in examples:
        (tmp_path / name).write_text(text, "utf-8")
    paths = [*POLICIES.glob("*.yaml"), *tmp_path.glob("*.yaml")]
    for path in paths:
        name = path.stem if path.stem in {"providers", "stops"} else "policy"
        assert faults(DOCUMENTS[name], value_of(path.read_text("utf-8"))) == set(), path
    policies = [str(path) for path in paths if path.stem not in {"providers", "stops"}]
    command = [sys.executable, "-m", "check_jsonschema", "--schemafile", str(FOLDER / "policy.json"), *policies]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


REF = 'ref: "refs/heads/main"'
BAD_POLICIES = [
    ("mode: active", "mode: activ", "$.mode", "'activ' is not one of ['active', 'staged', 'suspended']"),
    (REF, "ref: {globb: x}", "$.identities[0].require.ref", "Additional properties are not allowed ('globb' was unexpected)"),
    (REF, "ref: {glob: 1}", "$.identities[0].require.ref.glob", "1 is not of type 'string'"),
    (REF, "ref: {any_of: [x], glob: y}", "$.identities[0].require.ref", "'glob' is not one of ['any_of']"),
    (REF, "ref: {regex: x}", "$.identities[0].require.ref", "'reason' is a required property"),
    (REF, "ref: {reason: x}", "$.identities[0].require.ref", "'regex' is a required property"),
    (REF, "ref: {}", "$.identities[0].require.ref", "{} should be non-empty"),
    (REF, "ref: {absent: false}", "$.identities[0].require.ref.absent", "False is not one of [True]"),
    (REF, "ref: 1.5", "$.identities[0].require.ref", "1.5 is not of type 'string', 'boolean', 'integer', 'object'"),
    (REF, "ref: {any_of: [[]]}", "$.identities[0].require.ref.any_of[0]", "[] is not of type 'string', 'boolean', 'integer'"),
    ('repository_id: "7"', "repository_id: 7", "$.identities[0].pins.repository_id", "7 is not of type 'string'"),
    ('metrics: ["*"]', "metrics: [{idd: x}]", "$.grants.metrics[0]", "Additional properties are not allowed ('idd' was unexpected)"),
    ('metrics: ["*"]', "metrics: [5]", "$.grants.metrics[0]", "5 is not of type 'string', 'object'"),
    ("version: 1", "version: 2", "$.version", "2 is not one of [1]"),
    ("ttl_s: 3600", "ttl_s: 86401", "$.token.ttl_s", "86401 is greater than the maximum of 86400"),
    ('models: ["*/*"]', "models: []", "$.grants.models", "[] should be non-empty"),
    ("integration: inspect-ai", "integration: Inspect", "$.integration", "'Inspect' does not match '^[a-z0-9]+(-[a-z0-9]+)*$'"),
    ("grants:", "granted:", "$", "'grants' is a required property"),
]  # fmt: skip
BAD_PROVIDERS = [
    ("profile: github-actions", "profile: github", "$.providers['github-actions'].profile", "'github' is not one of ["),
    ("{bounded: 10}", "dubble", "$.providers['gitlab-ci'].uses", "'dubble' is not one of ['single']"),
    ("{bounded: 10}", "{bound: 10}", "$.providers['gitlab-ci'].uses", "Additional properties are not allowed ('bound' was unexpected)"),
    ("{bounded: 10}", "{bounded: 0}", "$.providers['gitlab-ci'].uses.bounded", "0 is less than the minimum of 1"),
    ("uses: {bounded: 10}", "keys: {jwks_url: x}", "$.providers['gitlab-ci'].keys", "Additional properties are not allowed ('jwks_url' was unexpected)"),
    ("uses: {bounded: 10}", "keys: {jwks_uri: x, static: [{}]}", "$.providers['gitlab-ci'].keys", "'static' is not one of ['jwks_uri']"),
    ('    issuer: "https://id.acme.example"\n', "", "$.providers.acme", "'issuer' is a required property"),
    ('    issuer: "https://id.acme.example"\n', '    issuer: "https://x"\n    events: []\n', "$.providers.acme", "False schema does not allow []"),
]  # fmt: skip
ACME, OPAQUE, ROBOTS = "$.providers.acme", "$.providers.opaque", "$.providers.robots"
BAD_REUSABLE = [
    ('    issuer: "https://id.acme.example"\n', "", ACME, "'issuer' is a required property"),
    ('    issuer: "https://id.acme.example"\n', '    issuer: "https://x"\n    uses: single\n', ACME, "False schema does not allow 'single'"),
    ("profile: oauth\n", "profile: oauth-introspection\n", ACME, "'introspection' is a required property"),
    ("profile: oauth-introspection\n", "profile: oauth-introspection\n    keys: discovery\n", OPAQUE, "False schema does not allow 'discovery'"),
    ('      client_id: "issuer"\n', "", f"{OPAQUE}.introspection", "'client_id' is a required property"),
    ('      client_id: "issuer"\n', '      client_secret: "x"\n      client_id: "issuer"\n', f"{OPAQUE}.introspection", "Additional properties are not allowed ('client_secret' was unexpected)"),
    ("profile: pat\n", 'profile: pat\n    issuer: "https://x"\n', ROBOTS, "False schema does not allow 'https://x'"),
    ("profile: pat\n", "profile: pat\n    max_age_s: 60\n", ROBOTS, "False schema does not allow 60"),
]  # fmt: skip


def test_what_is_wrong_is_named_with_its_place() -> None:
    for name, good, cases in (
        ("policy", POLICY, BAD_POLICIES), ("providers", PROVIDERS, BAD_PROVIDERS), ("providers", REUSABLE, BAD_REUSABLE),
    ):  # fmt: skip
        assert faults(DOCUMENTS[name], value_of(good)) == set()
        for old, new, place, message in cases:
            found = faults(DOCUMENTS[name], value_of(changed(good, old, new)))
            assert [text for where, text in found if where == place and text.startswith(message)], (new, found)


VALUES = [None, True, 0, -1, 86_401, 1.5, "", "x", "A", "main\n", "2027-6-3", "x" * 600, [], {}, ["x"], [1], {"glob": "x"},
          {"glob": "x", "any_of": ["y"]}, {"absent": 1}, {"regex": "a"}, {"bounded": 0}, {"id": "x", "min": "0"}]  # fmt: skip


def changes(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Go through the place of every node below."""
    for name, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*at, name)
        yield from changes(part, (*at, name))


@settings(examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_what_the_schema_refuses_the_loader_refuses(tmp_path: Path, data: st.DataObject) -> None:
    """Otherwise an editor would find fault with a good file."""
    name, text = data.draw(st.sampled_from([("policy", POLICY), ("providers", PROVIDERS), ("providers", REUSABLE)]))
    value = cast("dict[str, Any]", load_yaml(text.encode(), name).value)
    inner: Any = value
    *way, last = data.draw(st.sampled_from(list(changes(value))))
    for step in way:
        inner = inner[step]
    if data.draw(st.booleans()):
        inner[last] = data.draw(st.sampled_from(VALUES))
    else:
        del inner[last]
    texts = {"policy": POLICY, "providers": PROVIDERS, name: json.dumps(value)}
    write(tmp_path, texts["providers"], inspect_ai=texts["policy"])
    policies, _ = check_policies(tmp_path, ISSUER_URL, NOW)
    if not Draft202012Validator(DOCUMENTS[name]).is_valid(value):
        assert policies is None, value
