"""The JSON Schemas for editors: made from the types, committed, and clear about what is wrong (check-jsonschema)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
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


def validate(name: str, *paths: Path) -> dict[str, set[tuple[str, str]]]:
    """Run check-jsonschema as a process; return (place, message) pairs by file name."""
    command = [sys.executable, "-m", "check_jsonschema", "--schemafile", str(FOLDER / f"{name}.json"), "-o", "json"]
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, check=False)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["status"]) in {(0, "ok"), (1, "fail")}, done.stdout + done.stderr
    found: dict[str, set[tuple[str, str]]] = {}
    for error in answer.get("errors", []):
        assert not error["has_sub_errors"], error
        found.setdefault(Path(error["filename"]).name, set()).add((error["path"], error["message"]))
    assert not answer.get("parse_errors")
    return found


# -- committed --------------------------------------------------------------------------------------------------------


def test_the_committed_schemas_are_those_of_the_types() -> None:
    """Anew: `issuer policy schema NAME > policies/schema/NAME.json`."""
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.json" for name in DOCUMENTS}
    assert {path.stem: path.read_bytes() for path in FOLDER.iterdir()} == schemas()


def test_every_sample_names_its_schema_where_an_editor_looks() -> None:
    for path in POLICIES.glob("*.yaml"):
        name = "providers" if path.stem == "providers" else "policy"
        assert path.read_text("utf-8").startswith(f"# yaml-language-server: $schema=schema/{name}.json\n"), path


# -- complete ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_member_of_every_type_is_explained(name: str) -> None:
    document, kind = DOCUMENTS[name], KINDS[name]
    types = {kind.__name__: document, **document["$defs"]}
    for type_name, schema in types.items():
        assert schema["properties"].keys() == MEMBERS[type_name].keys(), type_name
        assert all(member["description"] for member in schema["properties"].values()), type_name
        assert schema["title"]
        assert schema["description"]
        assert "\n  " not in schema["description"]


def test_no_type_is_explained_that_is_none() -> None:
    assert MEMBERS.keys() == {kind.__name__ for kind in KINDS.values()} | {
        name for document in DOCUMENTS.values() for name in document["$defs"]
    }


def test_a_schema_is_one_of_2020_12_with_an_identity_of_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--check-metaschema", *(FOLDER / f"{name}.json" for name in DOCUMENTS)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    for name, document in DOCUMENTS.items():
        assert document["$schema"].endswith("2020-12/schema"), name
    assert len({document["$id"] for document in DOCUMENTS.values()}) == len(DOCUMENTS)


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Go through every map below."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from nodes(part)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_there_is_no_union_of_which_an_error_would_only_say_that_nothing_fits(name: str) -> None:
    assert not [node for node in nodes(DOCUMENTS[name]) if {"anyOf", "oneOf", "discriminator"} & node.keys()]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_an_example_is_good_where_it_is_given(name: str, tmp_path: Path) -> None:
    """Each example is put into its own document, which demands what the member demands."""
    document, cases = DOCUMENTS[name], []
    for type_name, schema in {KINDS[name].__name__: document, **document["$defs"]}.items():
        cases += [
            (f"{type_name}.{member}", part, example)
            for member, part in schema["properties"].items()
            for example in part.get("examples", [])
        ]
    assert len(cases) > 3
    whole = {"$schema": document["$schema"], "$defs": document["$defs"], "type": "object",
             "properties": {f"{place} {index}": part for index, (place, part, _) in enumerate(cases)}}  # fmt: skip
    (tmp_path / "schema.json").write_text(json.dumps(whole))
    (tmp_path / "all.json").write_text(json.dumps({f"{p} {i}": value for i, (p, _, value) in enumerate(cases)}))
    command = ["-m", "check_jsonschema", "--schemafile", str(tmp_path / "schema.json"), str(tmp_path / "all.json")]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


# -- good and bad files -----------------------------------------------------------------------------------------------


def test_the_samples_and_the_reference_s_examples_are_good(tmp_path: Path) -> None:
    pages = "".join((POLICIES / name).read_text("utf-8") for name in ("README.md", "REFERENCE.md"))
    examples = re.findall(r"```yaml\n# ([a-z-]+\.yaml)\n(.*?)```", pages, re.S)
    assert len(examples) > 1
    for name, text in examples:
        (tmp_path / name).write_text(text, "utf-8")
    paths = [*POLICIES.glob("*.yaml"), *tmp_path.glob("*.yaml")]
    apart = {"providers", "stops"}
    assert validate("policy", *(path for path in paths if path.stem not in apart)) == {}
    for name in apart:
        assert validate(name, *(path for path in paths if path.stem == name)) == {}


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


@pytest.mark.parametrize(("name", "good", "cases"), [("policy", POLICY, BAD_POLICIES), ("providers", PROVIDERS, BAD_PROVIDERS),
                                                      ("providers", REUSABLE, BAD_REUSABLE)])  # fmt: skip
def test_what_is_wrong_is_named_with_its_place(
    name: str, good: str, cases: list[tuple[str, str, str, str]], tmp_path: Path
) -> None:
    for number, (old, new, _, _) in enumerate(cases):
        (tmp_path / f"{number}.yaml").write_text(changed(good, old, new))
    (tmp_path / "good.yaml").write_text(good)
    found = validate(name, *tmp_path.iterdir())
    for number, (_, _, place, message) in enumerate(cases):
        told = found.pop(f"{number}.yaml")
        assert [said for where, said in told if where == place and said.startswith(message)], told
    assert found == {}


# -- schema and loader ------------------------------------------------------------------------------------------------

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
