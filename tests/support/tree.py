"""A folder of repositories with result files, made fast: real claims, real signatures, one entry a file."""

from collections.abc import Iterator
from pathlib import Path

from issuer.formats import jcs, jose
from issuer.formats.strict_json import JSON
from issuer.results.entry import write_entry
from tests.support.make import AUDIENCE, HEADER, ISSUER, KEY, jwks, payload_of, submission

FILES_A_REPO = 5
SOURCE: dict[str, JSON] = {"url": "https://hub.example/spaces/acme/x"}
DETAILS: dict[str, JSON] = {"date": "2026-11-21T09:00:00Z", "notes": "no tools", "source": SOURCE}


def write_tree(root: Path, count: int, **members: JSON) -> Iterator[Path]:
    """Write `count` result files of one entry, each with its own token and jti, and further members of the payload."""
    for number in range(count):
        task = number % FILES_A_REPO
        path = root / f"owner{number // 500}" / f"model{number // FILES_A_REPO}" / ".eval_results" / f"task_{task}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        repo = f"{path.parts[-4]}/{path.parts[-3]}"
        path.write_text(entry_text(repo, number, value=number / count, **members), "utf-8")
        yield path


def entry_text(repo: str, number: int, *, value: float = 0.5, **members: JSON) -> str:
    """Return an entry of the repository with a token whose jti is this number, and further members of its payload."""
    metrics = [{"metric_id": "accuracy", "value": round(value, 6)}]
    item = submission(DETAILS, model_repo=repo, benchmark_repo=f"bench/task-{number % FILES_A_REPO}", metrics=metrics)
    jti = jose.base64url_encode(number.to_bytes(16, "big"))
    # Not by tests.support.make.signed: to have joserfc verify each would take longer than all the rest.
    signing_input = jose.signing_input(HEADER, jcs.canonical(payload_of(item, jti=jti, **members)))
    return write_entry(item.form, jose.compact(signing_input, jose.sign(KEY, signing_input)))


def write_trust(folder: Path, more: str = "") -> Path:
    """Write a trust file in the issuer of the tests, with its key beside it."""
    (folder / "keys.json").write_bytes(jwks())
    trust = folder / "trust.yaml"
    issuer = f'issuers:\n  - issuer: "{ISSUER}"\n    keys: {{file: keys.json}}\n'
    trust.write_text(f'version: 1\naudience: "{AUDIENCE}"\n{issuer}{more}')
    return trust


def write_result(root: Path, repo: str, name: str, text: str | bytes) -> Path:
    path = root / repo / ".eval_results" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
