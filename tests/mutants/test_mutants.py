"""The mutants of each kind of statement, and the lists of targets and survivors."""

import tomllib

from tests.mutants.__main__ import HERE, mutants_of
from tests.mutants.operators import mutants
from tests.mutants.targets import SCRIPTS, TARGETS
from tests.support.shared import ROOT

HEAD = "async def f(a, b):\n    "


def changed(line: str) -> list[str]:
    found = mutants("x.py", f"{HEAD}{line}\n".encode())
    return [mutant.source.decode().removeprefix(HEAD).rstrip() for mutant in found]


def test_a_mutant_changes_one_place() -> None:
    for line, expected in (
        ("return a == b", ["return a != b"]), ("return a < b", ["return a <= b", "return a >= b"]),
        ("return a is not b", ["return a is b"]), ("return a not in b", ["return a in b"]),
        ("return a and b or c", ["return a or b or c", "return a and b and c"]), ("return not a", ["return  a"]),
        ("return a | b", ["return a", "return b"]), ("return a + 1", ["return a - 1", "return a + 2"]),
        ("return f(x=True)", ["return f(x=False)"]), ("return min(a)", ["return max(a)"]), ("a.b = c", ["pass"]),
        ("a.b()", ["pass"]), ("raise a", ["pass"]),
        ("return [c for c in a if c]", ["return [c for c in a if not (c)]"]),
        ("while a: break", ["while not (a): break", "while a: continue"]),
    ):  # fmt: skip
        assert sorted(changed(line)) == sorted(expected)


def test_text_annotations_and_f_strings_are_not_changed() -> None:
    kept = (
        "'a word'", "a: int | None", "a: TypeAlias = int | None", "return f'{a + 1}'", "return 'text'", "return a.b",
    )  # fmt: skip
    assert [line for line in kept if changed(line)] == []


def test_two_effects_are_swapped_where_the_second_does_not_need_the_first() -> None:
    assert changed("a = await f()\n    b = await g()") == ["b = await g()\n    a = await f()"]
    assert changed("a = await f()\n    b = await g(a)") == []


def test_a_name_stays_when_lines_above_it_come() -> None:
    source = b"def f(a):\n    return a + 1\n"
    names = [mutant.name for mutant in mutants("x.py", source)]
    assert names == ["x.py f: + -> - in `return a + 1`", "x.py f: 1 -> 2 in `return a + 1`"]
    assert [mutant.name for mutant in mutants("x.py", b"import os\n\n" + source)] == names


def test_a_diff_shows_the_line_that_changed() -> None:
    (mutant, *_) = mutants("x.py", b"def f(a):\n    return a < b\n")
    assert mutant.diff().splitlines()[1:] == ["-    return a < b", "+    return a <= b"]


def test_the_tests_of_every_target_are_there() -> None:
    for path, tests in {**TARGETS, **SCRIPTS}.items():
        assert all((ROOT / name).exists() for name in (path, *tests)), path


def test_each_part_of_the_script_has_at_least_ten_mutants() -> None:
    assert all(len(mutants_of(path)) >= 10 for path in SCRIPTS)


def test_every_survivor_that_is_named_is_a_mutant_and_has_a_reason() -> None:
    survivors = tomllib.loads((HERE / "survivors.toml").read_text("utf-8"))
    paths = {name.partition(" ")[0] for name in survivors}
    targets = {path: (ROOT / path).read_bytes() for path in TARGETS if path in paths}
    names = {mutant.name for path, source in targets.items() for mutant in mutants(path, source)}
    for name, reason in survivors.items():
        assert name in names, name
        assert len(reason) > 10, name
