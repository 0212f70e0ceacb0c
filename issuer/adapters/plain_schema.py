"""JSON Schema (2020-12) of the JSON that `--from json` reads, for authors of harnesses. Pure.

Made of the types that read it, so that the two cannot drift apart. It helps while writing, and judges nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from issuer.adapters.plain_json import PlainFile
from issuer.results.claims import REVISION

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_ID = "urn:eval-token-issuer:schema:run:1"
_COMMIT = {"pattern": f"^(?:{REVISION.pattern})$", "description": "A full commit: 40 or 64 lowercase hex characters."}
_REPO = {"pattern": "^[^/]+/[^/]+$", "description": "`owner/name` on the Hub."}

# What the types cannot say of each member.
MEMBERS: dict[str, dict[str, dict[str, Any]]] = {
    "PlainFile": {
        "format": {"description": "This format and its version."},
        "runs": {"description": "The runs, in the order in which their results are written."},
        "$schema": {"description": "For editors; not read."},
    },
    "PlainRun": {
        "metrics": {"description": "The numbers to claim; a metric id twice needs two slices."},
        "completeness": {"description": "Of all samples of the task, of a part, or not known."},
        "framework": {"description": "The harness."},
        "model_repo": {**_REPO, "description": "The model that was measured, `owner/name` on the Hub."},
        "model_revision": _COMMIT,
        "benchmark_repo": {**_REPO, "description": "The benchmark's dataset, `owner/name` on the Hub."},
        "benchmark_revision": _COMMIT,
        "task_id": {"description": "A task id of the benchmark's eval.yaml."},
        "task": {"description": "The harness's own word for the task, where that differs."},
        "mock": {"description": "The name of a model that only pretends to be one."},
        "details": {"description": "What the entry says beside its claims."},
    },
    "PlainMetric": {
        "metric_id": {"description": "A metric id of the benchmark's eval.yaml: printable ASCII without space."},
        "value": {"description": "The number, with at most 17 significant digits."},
        "slice": {"description": "The subset of the benchmark that it is of."},
        "value_type": {"description": "What kind of number it is; int and rank demand a whole one."},
        "sample_size": {"description": "How many samples it was computed of, each counted once."},
        "scorer": {"description": "The scorer or filter that it comes from."},
        "reducer": {"description": "What made one number of several epochs or perturbations."},
        "epochs": {"description": "How often each sample was run."},
        "split": {"description": "The benchmark's split that the samples are from."},
    },
    "PlainFramework": {
        "name": {"description": "The name of its package, at most 64 printable ASCII characters."},
        "version": {"description": "The version of that package, or the commit of its code."},
        "command": {"description": "The command line of the run, without secrets, at most 4096 characters."},
    },
    "PlainCompleteness": {
        "answer": {"description": "The word for it."},
        "reason": {"description": "What is missing, or why nobody knows; needed unless the answer is full."},
    },
    "Details": {
        "date": {"description": "When the run ended, ISO 8601."},
        "source": {"description": "Where the result is published."},
        "notes": {"description": "What a reader of the number should know."},
        "run": {"description": "The run's own words: model, seed, batch_size, code_revision ..."},
        "artifacts": {"description": "Files of evidence, each with name and sha256; this file is added."},
        "runtime_context": {"description": "What it ran on."},
        "benchmark_subset": {"description": "The dataset's configuration."},
        "normalization": {"description": "How answers were normalised."},
    },
    "Source": {
        "url": {"description": "Absolute, http or https, without credentials."},
        "name": {"description": "What it is called."},
        "user": {"description": "Whose it is: an account of the Hub."},
        "org": {"description": "Whose it is: an organization of the Hub."},
    },
}  # fmt: skip


def schema() -> bytes:
    """Return the schema as indented JSON with a final newline."""
    _, types = msgspec.json.schema_components([PlainFile], ref_template="#/$defs/{name}")
    described = {name: _described(name, part) for name, part in types.items()}
    root = described.pop("PlainFile")
    whole = {"$schema": DIALECT, "$id": SCHEMA_ID, **root, "title": "Finished runs", "$defs": described}
    return msgspec.json.format(msgspec.json.encode(whole)) + b"\n"


def _described(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    members = {member: {**part, **MEMBERS[name][member]} for member, part in schema["properties"].items()}
    return {**schema, "description": " ".join(schema["description"].split()), "properties": members}
