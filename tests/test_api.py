"""The API of `import issuer`: its names, and a script that verifies a file. tests/client/test_service.py tests the
client with a real issuer."""

import inspect
from pathlib import Path

import pytest

import issuer
from issuer import api
from issuer.codes import Code
from issuer.errors import InputError
from issuer.token.wire import Denied, ShownCheck
from tests.support.shared import ROOT


def test_every_name_is_there_whatever_was_imported_before() -> None:
    assert issuer.__all__ == api.__all__ == sorted(api.__all__)
    assert {name for name in issuer.__all__ if getattr(issuer, name) is not getattr(api, name)} == set()
    assert set(issuer.__all__) < set(dir(issuer))
    assert not set(issuer.__all__) & {path.stem for path in (ROOT / "issuer").iterdir()}, "a room would hide the name"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = issuer.nonsense  # type: ignore[attr-defined]


def test_both_clients_have_the_same_calls() -> None:
    for name, call in inspect.getmembers(issuer.Client, inspect.isfunction):
        if not name.startswith("_"):
            assert inspect.signature(call) == inspect.signature(getattr(issuer.AsyncClient, name)), name


def test_a_refusal_s_text_says_what_was_there_and_what_is_wanted_in_one_line() -> None:
    check = ShownCheck("policy.task", "/claims/task_id", "grants.tasks", False, "gsm8k\x1b[2J", "hle", "Ask for hle.")
    good = ShownCheck("policy.model", "/claims/model_repo", "grants.models", True, "acme/open-model", "", "")
    text = str(Denied(Code.POLICY_TASK, "No rule grants it.", checks=(good, check)))
    assert text == r"policy.task: /claims/task_id: gsm8k\x1b[2J, wanted hle. Ask for hle"


def test_a_file_is_verified_only_in_a_repository_that_can_be_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="OWNER/NAME"):
        issuer.verify_file(tmp_path / "a.yaml", repo="open-model", trust="trust.yaml")
    with pytest.raises(InputError) as caught:
        issuer.verify_file(tmp_path / "a.yaml", repo="acme/open-model", trust=tmp_path / "trust.yaml")
    assert caught.value.code is Code.FILE_UNREADABLE


def test_claims_that_are_made_take_nothing_more() -> None:
    run = issuer.read(ROOT / "tests/data/plain_run.json")
    with pytest.raises(ValueError, match=r"run\.claims"):
        issuer.Client("https://issuer.example").request(run.claims(issuer.Supplied()), issuer.Supplied())
