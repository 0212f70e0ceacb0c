"""Files edited in place: only the requested entry changes, and every other byte remains."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from issuer.codes import Code
from issuer.errors import InputError, Place
from issuer.formats import jose
from issuer.results import edit
from issuer.results.entry import read_entries, write_entry
from tests.support import make
from tests.support.result_texts import FILE, PARTS
from tests.support.shared import examples

NEW = make.file_for(make.submission(task_id="new"))


Entries = list[tuple[object, str | None]]


def lines_kept(before: str, after: str) -> bool:
    """Say whether every line of one text is in the other, in the same order."""
    rest = iter(after.splitlines())
    return all(line in rest for line in before.splitlines())


def entries(text: str) -> Entries:
    return [(entry.form, entry.token) for entry in read_entries(text.encode(), "f")] if text.strip() else []


def tokens(text: str) -> list[str | None]:
    return [entry.token for entry in read_entries(text.encode(), "f")]


def tasks(text: str) -> list[Any]:
    return [entry.dataset.task_id for entry in read_entries(text.encode(), "f")]


def test_entries_are_appended_as_the_others_are_indented_and_all_before_them_stays() -> None:
    assert edit.append(FILE, NEW, "f") == FILE + NEW
    assert tasks(FILE + NEW) == ["first", "second", "third", "new"]
    assert edit.append(edit.rewrite("[]", "f"), NEW, "f") == NEW
    assert edit.extend(FILE, NEW + NEW, "f") == FILE + NEW + NEW
    assert edit.extend("", NEW + NEW, "f") == NEW + NEW
    before = "# x\n   - dataset: {id: a/b}\n     value: 1"
    for after in (edit.append(before, NEW, "f"), edit.extend(before, NEW, "f")):
        assert after.startswith(before + "\n   - dataset:")
        assert len(tasks(after)) == 2


def test_an_issued_token_is_put_into_the_equal_entry_that_has_none() -> None:
    said = make.submission({"notes": "x"}, task_id="second")
    bare, issued = write_entry(said.form), make.file_for(said)
    before = FILE + bare.replace('notes: "x"', "notes: x # mine") + "# end\n"
    after = edit.put_entry(before, issued, "f")
    assert tokens(after) == [None, None, None, make.token_for(said)]
    assert lines_kept(before, after)
    assert edit.put_entry(after, issued, "f") == after, "the same token changes nothing"
    newer = make.file_for(said, jti=jose.base64url_encode(bytes(16)))
    assert tokens(edit.put_entry(after, newer, "f"))[3:] == [read_entries(newer.encode(), "f")[0].token]
    assert edit.put_entry(after + newer, newer, "f") == after + newer, "it may be a later one that has the token"
    assert tokens(edit.put_entry(bare + bare, issued, "f")) == [make.token_for(said), None]


def test_an_issued_entry_is_appended_where_none_says_the_same() -> None:
    for old, new in [('"x"', '"y"'), ("20.9", "21"), ('"gsm8k"', '"second"')]:
        said = make.submission({"notes": "x"})
        before = write_entry(said.form).replace(old, new)
        for text in ("", before):
            assert edit.put_entry(text, make.file_for(said), "f") == text + make.file_for(said)
        assert edit.put_entry(write_entry(said.form), write_entry(said.form), "f") == write_entry(said.form) * 2


def test_an_entry_begins_above_its_first_member() -> None:
    heads, dashes = ["\n", "# a\n", "\n\n# a\n\n"], ["- ", "-\n  ", "-\n\n  ", "- # b\n\n  # c\n  "]
    for head, dash in itertools.product(heads, dashes):
        before = f"{head}{dash}dataset: {{id: a/b}}\n"
        assert edit.append(before, NEW, "f") == before + NEW
    for before in ("", "\n", "   \n\n"):
        assert tasks(edit.append(before, NEW, "f")) == ["new"]


def test_an_entry_is_put_in_its_place_and_indented_as_the_others_are() -> None:
    before = "  - dataset: {id: a/b}\n  - dataset: {id: c/d}\n    value: 1\n  - dataset: {id: e/f}\n"
    indented = "".join(f"  {line}\n" for line in NEW.splitlines())
    after = edit.replace(before, 1, NEW, "f")
    assert after == "  - dataset: {id: a/b}\n" + indented + "  - dataset: {id: e/f}\n"
    first, second = "- dataset: {id: a/b}\n  notes: |\n    x\n", "- dataset: {id: c/d}\n"
    assert edit.put_token(first + second, 0, "a.b.c", "f") == f'{first}  verify_token: "a.b.c"\n{second}'
    assert edit.replace(first + second, 0, NEW, "f") == NEW + second


def test_an_entry_is_replaced_or_gets_a_token_and_the_others_keep_every_line() -> None:
    between, second, third = map(FILE.index, ("# between", "-\n", "- {dataset: {id: a/b, task_id: th"))
    kept = (FILE[between:], FILE[:second], FILE[:third])
    for index in range(3):
        after = edit.replace(FILE, index, NEW, "f")
        names = ["first", "second", "third"]
        assert tasks(after) == [*names[:index], "new", *names[index + 1 :]]
        assert kept[index] in after
        assert {"# head", "# between", "# foot"} <= set(after.splitlines())
        after = edit.put_token(FILE, index, "a.b.c", "f")
        assert tokens(after) == ["a.b.c" if place == index else None for place in range(3)]
        assert index == 2 or lines_kept(FILE, after)
        assert len(after) < len(FILE) + 60


def test_a_token_replaces_the_old_one_under_each_name_and_in_any_style() -> None:
    before = "- dataset: {id: a/b}\n  verifyToken: null # old\n  verify_token: null\n- dataset: {id: c/d}\n  verify_token: 'x.y.z'\n"
    after = edit.put_token(before, 0, "a.b.c", "f")
    assert after == before.replace("oken: null", 'oken: "a.b.c"')
    assert tokens(edit.put_token(after, 1, "q.r.s", "f")) == ["a.b.c", "q.r.s"]
    for style in ["|\n    x.y.z", ">-\n    x.y.z", "|+\n    x.y.z\n", '"x.y.z"']:
        before = f"- dataset: {{id: a/b}}\n  verify_token: {style}\n  value: 1\n"
        assert tokens(edit.put_token(before, 0, "a.b.c", "f")) == ["a.b.c"]
    for style in ["|", ">", "|+"]:
        before = f"- dataset: {{id: a/b}}\n  notes: {style}\n    x"
        with pytest.raises(InputError, match="line break"):
            edit.put_token(before, 0, "a.b.c", "f")
        assert tokens(edit.put_token(before + "\n", 0, "a.b.c", "f")) == ["a.b.c"]


def test_line_ends_stay_and_an_index_without_an_entry_is_refused() -> None:
    dos = FILE.replace("\n", "\r\n")
    for after in (edit.append(dos, NEW, "f"), edit.replace(dos, 1, NEW, "f"), edit.put_token(dos, 0, "a.b.c", "f")):
        assert after.count("\n") == after.count("\r\n")
    for index in [-1, 3, 99]:
        for change in (edit.replace, edit.put_token):
            with pytest.raises(InputError, match="it has 3"):
                change(FILE, index, NEW, "f")


def test_a_file_that_cannot_be_edited_in_place_is_refused_and_not_broken() -> None:
    """A pair in a flow list is a map, and a line below it is not a member of it."""
    for before in ("- dataset: {id: a/b}\n...\n", "[{dataset: {id: a/b}}]\n"):
        with pytest.raises(InputError, match="in place") as caught:
            edit.append(before, NEW, "f")
        assert caught.value.place.line == 0
    for before in ("a: b\n", "- 1\n", "- dataset: {id: a/b}\n  notes: |+\n   x"):
        with pytest.raises(InputError):
            edit.append(before, NEW, "f")
    for text in ("[dataset: {id: a/b}]\n", "[dataset: {id: a/b},\n]\n"):
        with pytest.raises(InputError) as caught:
            edit.put_token(text, 0, "x", "f.yaml")
        assert str(caught.value).startswith("f.yaml: file.rule: has a layout that cannot be edited in place")
    for entry in (NEW + NEW, "", "[]", "nonsense", "- 1"):
        with pytest.raises(InputError):
            edit.append(FILE, entry, "f")
        with pytest.raises(InputError):
            edit.replace(FILE, 1, entry, "f")


SAID = make.submission({"notes": "x"}, task_id="second")
TOKEN = make.token_for(SAID)
FORMS = {
    "target": write_entry(SAID.form, TOKEN),
    "both": write_entry(SAID.form, TOKEN, profile="both", primary="accuracy"),
    "hub": write_entry(SAID.form, profile="hub", primary="accuracy"),
}


def test_an_entry_keeps_its_form_unless_it_is_to_be_reshaped() -> None:
    for there, issued in [("target", "both"), ("both", "target")]:
        before = FILE + FORMS[there] + "# end\n"
        newer = FORMS[issued].replace(TOKEN, "x.y.z")
        assert edit.put_entry(before, FORMS[issued], "f") == before
        assert edit.put_entry(before, newer, "f") == before.replace(TOKEN, "x.y.z")
        assert edit.put_entry(before, FORMS[issued], "f", reshape=True) == FILE + FORMS[issued] + "# end\n"
        assert edit.put_entry(before, newer, "f", reshape=True) == FILE + newer + "# end\n"
        assert edit.put_entry(before, FORMS[there], "f", reshape=True) == before
        renewed = edit.put_entry(before, FORMS[there].replace(TOKEN, "x.y.z"), "f", reshape=True)
        assert renewed == before.replace(TOKEN, "x.y.z")
    # Of two equal entries the one of the form is renewed.
    before = FORMS["target"].replace(TOKEN, "a.b.c") + FORMS["both"]
    after = edit.put_entry(before, FORMS["both"].replace(TOKEN, "x.y.z"), "f", reshape=True)
    assert tokens(after) == ["a.b.c", "x.y.z"]
    assert tokens(edit.put_entry(before, FORMS["both"].replace(TOKEN, "x.y.z"), "f")) == ["x.y.z", TOKEN]


def test_a_file_lacks_the_content_that_none_of_its_entries_has() -> None:
    """Without metrics, `value` is the content of an entry."""
    bare = write_entry(SAID.form)
    other = FORMS["hub"].replace("value: 20.9", "value: 20.8")
    assert other != FORMS["hub"]
    lacking = edit.lacks(FORMS["both"] + FORMS["hub"], bare + NEW + FORMS["hub"] + other, "f")
    assert lacking == [False, True, False, True]
    assert edit.lacks("", bare + NEW, "f") == edit.lacks(" \n", bare + NEW, "f") == [True, True]
    assert edit.lacks(FILE, FILE, "f") == [False] * 3


def test_rewriting_changes_the_spelling_and_nothing_that_is_said() -> None:
    after = edit.rewrite(FILE, "f")
    before, now = ([(one.form, one.value) for one in read_entries(text.encode(), "f")] for text in (FILE, after))
    assert now == before
    assert edit.rewrite(after, "f") == after
    assert edit.rewrite("[]\n", "f") == "[]\n"


def test_a_value_or_profile_that_an_entry_cannot_have_is_refused() -> None:
    text = "- dataset: {id: a/b}\n  metrics: [{metric_id: m, value: 1}]\n  value: 2\n"
    with pytest.raises(InputError) as caught:
        edit.rewrite(text, "f", profile="target")
    assert caught.value.code is Code.RESULT_VALUE
    issued = text.replace("value: 2", 'verify_token: "a.b.c"')
    with pytest.raises(InputError) as caught:
        edit.put_entry(text, issued, "f")
    assert (caught.value.code, caught.value.place.line) == (Code.RESULT_VALUE, 3)
    assert "value: 2" in edit.rewrite(text, "f")
    assert "value: 2" not in edit.rewrite(text.replace("value: 2", "value: 1"), "f", profile="target")
    with pytest.raises(InputError) as caught:
        edit.rewrite(FILE + NEW, "f", profile="both", primary="f1")
    assert (caught.value.place, caught.value.pointer) == (Place("f", 14, 3), "/1/metrics")


@examples(400)
@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.lists(st.sampled_from(PARTS), max_size=14).map("".join)
    | st.lists(st.sampled_from(PARTS), max_size=9).map(lambda parts: "- dataset: {id: a/b}\n  " + "".join(parts)),
    st.integers(-2, 3), st.sampled_from([NEW, "- dataset: {id: c/d}\n", ""]) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)  # fmt: skip
def test_any_text_is_edited_as_asked_or_refused(text: str, index: int, entry: str) -> None:
    def replaced(before: Entries) -> Entries:
        return [*before[:index], *entries(entry), *before[index + 1 :]]

    def with_token(before: Entries) -> Entries:
        return [(form, entry if place == index else token) for place, (form, token) in enumerate(before)]

    changes: list[tuple[Callable[[], str], Callable[[Entries], Entries]]] = [
        (lambda: edit.append(text, entry, "f"), lambda before: [*before, *entries(entry)]),
        (lambda: edit.replace(text, index, entry, "f"), replaced),
        (lambda: edit.put_token(text, index, entry, "f"), with_token),
        (lambda: edit.rewrite(text, "f"), lambda before: before),
        (lambda: edit.rewrite(text, "f", profile="both", primary="m"), lambda before: before),
    ]
    for change, expected in changes:
        try:
            after = change()
        except InputError:
            continue
        assert entries(after) == expected(entries(text))
