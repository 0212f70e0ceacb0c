"""A folder that is loaded again: only what changed is read, and a load of everything has the same outcome."""

import pickle
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from issuer.errors import InputError
from issuer.policy.authoring.load import Folder, FolderStep, Looks, PolicySource, load_folder, read_each
from issuer.policy.match import PolicySet
from tests.support.policies import GITHUB, ISSUER_URL, POLICY, PROVIDERS, changed, registration, write

# Holds as long as no other integration registers this branch of the repository.
OF_A_BRANCH = """\
tests:
  - name: another branch
    expect: identity.claim_mismatch
    provider: github-actions
    identity: {repository_id: "7", repository_owner_id: "6", ref: "refs/heads/name-0", event_name: "push",
               runner_environment: "github-hosted"}
"""


def looks_of(folder: Path) -> Looks:
    """Look at each file's text: a test writes twice within one tick of the clock that dates files."""
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def again(
    folder: Path, before: Folder, looks: Looks | None = None, note: Callable[[], object] = lambda: None
) -> tuple[Folder, FolderStep]:
    return load_folder(PolicySource(folder, ISSUER_URL), before, looks_of(folder) if looks is None else looks, note)


def named(name: str, pin: str) -> str:
    return changed(changed(POLICY, "integration: inspect-ai", f"integration: {name}"), '"7"', f'"{pin}"')


def content(policies: PolicySet) -> object:
    """Return all that a set says, in the order of the identities that share a pin."""
    buckets = {
        key: [(one.policy, one.identity, one.digest, one.claim_names) for one in bucket]
        for key, bucket in policies.registrations.items()
    }
    named = {
        key: [(one.policy, one.identity) for one in bucket]
        for part in policies.named.parts
        for key, bucket in part.items()
    }
    return policies.digest, dict(policies.policies), set(policies.digests), buckets, named


def outcome_of(load: Callable[[], Folder]) -> tuple[Folder | None, str]:
    try:
        return load(), ""
    except InputError as error:
        return None, f"{error.place} {error.pointer} {error}"


def edit(dice: random.Random, folder: Path) -> None:
    """Write, change or take away some file: mostly a good one, and pins are shared now and then."""
    name, pin = f"name-{dice.randrange(5)}", str(dice.choice([7, 8, 9]))
    file, text = folder / f"{name}.yaml", named(name, pin)
    if dice.random() < 0.5:  # so that two may share the pin
        text = changed(text, '"refs/heads/main"', f'"refs/heads/{name}"')
    choice = dice.randrange(12)
    if choice == 0 and file.exists():
        file.unlink()
    elif choice == 1:
        file.write_text(changed(text, "mode: active", "mode: actve"), "utf-8")
    elif choice == 2:
        providers = f"{PROVIDERS}# {dice.random()}\n" if dice.random() < 0.5 else PROVIDERS.replace("10", "20")
        (folder / "providers.yaml").write_text(providers, "utf-8")
    elif choice == 3:
        file.write_text(text + OF_A_BRANCH, "utf-8")
    else:
        file.write_text(f"{text}\n# {dice.random()}\n", "utf-8")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 12))])
def test_a_step_leads_where_a_load_of_everything_leads(tmp_path: Path, seed: int) -> None:
    """The same policies, the same order, the same first error; and so for a process that gets only the steps."""
    dice = random.Random(seed)
    state = stepped = again(write(tmp_path), Folder())[0]
    good = bad = 0
    for round_number in range(25):
        if round_number % 5 == 4:  # else most folders would stay broken
            for file in tmp_path.glob("name-*"):
                file.unlink()
            write(tmp_path)
        for _ in range(dice.choice([1, 1, 2, 4])):
            edit(dice, tmp_path)
        looks = looks_of(tmp_path)
        whole, whole_error = outcome_of(lambda: again(tmp_path, Folder())[0])
        steps: list[FolderStep] = []

        def step(before: Folder = state, looks: Looks = looks, steps: list[FolderStep] = steps) -> Folder:
            after, taken = again(tmp_path, before, looks)
            steps.append(taken)
            return after

        after, error = outcome_of(step)
        assert error == whole_error
        if whole is None or after is None:
            assert (whole, after) == (None, None)
            bad += 1
            continue
        assert content(after.policies) == content(whole.policies)
        stepped = stepped.after(pickle.loads(pickle.dumps(steps[0].without_values())))
        assert content(stepped.policies) == content(whole.policies)
        assert stepped.known == after.known
        state, good = after, good + 1
    assert good > 1
    assert bad > 1


def test_an_unchanged_file_is_neither_read_nor_judged_again(tmp_path: Path) -> None:
    state, _ = again(write(tmp_path, inspect_ai=POLICY), Folder())
    looks = looks_of(tmp_path)
    for file in ("inspect-ai.yaml", "providers.yaml"):
        (tmp_path / file).write_text("nothing good", "utf-8")
    after, step = again(tmp_path, state, looks)
    assert not step.changes
    assert after.policies.registrations == state.policies.registrations
    judged: list[int] = []
    write(tmp_path, inspect_ai=POLICY)
    _, step = again(tmp_path, state.doubted(), note=lambda: judged.append(1))
    assert (judged, step.changes) == ([], False), "the same bytes are not judged again"
    (tmp_path / "inspect-ai.yaml").write_text("nothing good", "utf-8")
    with pytest.raises(InputError):
        again(tmp_path, state.doubted(), looks)


def test_one_file_of_many_costs_one_file_also_in_a_broken_folder(tmp_path: Path) -> None:
    many = {f"name_{number}": named(f"name-{number}", f"1{number}") for number in range(50)}
    state, _ = again(write(tmp_path, **many), Folder())
    judged: list[int] = []
    (tmp_path / "name-7.yaml").write_text(changed(many["name_7"], "ttl_s: 3600", "ttl_s: 60"), "utf-8")
    after, step = again(tmp_path, state, note=lambda: judged.append(1))
    assert len(judged) == 2, "judged once, and its tests run once"
    assert [entry.policy.integration for entry in step.entries] == ["name-7"]
    assert registration(after.policies, repository_id="17").policy.token.ttl_s == 60
    other = registration(state.policies, repository_id="18")
    assert registration(after.policies, repository_id="18") is other, "the others are taken over as they are"
    looks = looks_of(tmp_path)
    (tmp_path / "name-8.yaml").write_text("nothing good", "utf-8")
    (tmp_path / "name-9.yaml").write_text(changed(many["name_9"], "mode: active", "mode: suspended"), "utf-8")
    found = read_each(tmp_path, after, {**looks, str(tmp_path / "name-9.yaml"): "another"})
    assert found is not None
    assert found["name-8"] is after.policies.policies["name-8"], "it looks as it did"
    assert found["name-9"] is not None
    assert found["name-9"].mode == "suspended", "of a broken folder only what changed is read alone"


def test_an_unchanged_file_whose_test_or_place_no_longer_holds_is_found(tmp_path: Path) -> None:
    for name in ("tested", "overlapping"):
        (tmp_path / name).mkdir()
    state, _ = again(write(tmp_path / "tested", inspect_ai=POLICY + OF_A_BRANCH), Folder())
    found = registration(state.policies, GITHUB)
    assert (found.policy.tests, b"another branch" in state.policies.digests[found.digest]) == ((), True)
    newcomer = changed(named("newcomer", "7"), '"refs/heads/main"', '"refs/heads/name-0"')
    write(tmp_path / "tested", newcomer=newcomer)
    with pytest.raises(InputError, match="another branch") as caught:
        again(tmp_path / "tested", state)
    assert Path(caught.value.place.file).name == "inspect-ai.yaml"
    assert caught.value.place.line == POLICY.count("\n") + 3
    state, _ = again(write(tmp_path / "overlapping", zeta=named("zeta", "9")), Folder())
    write(tmp_path / "overlapping", alpha=named("alpha", "9"))
    with pytest.raises(InputError, match="overlaps alpha/main") as caught:
        again(tmp_path / "overlapping", state)
    assert (Path(caught.value.place.file).name, caught.value.pointer) == ("zeta.yaml", "/identities/0")
