"""Result files to edit, and strategies for the content of their entries."""

from typing import Any

from hypothesis import strategies as st

from issuer.results.entry import read_entries


def read_one(text: str) -> Any:
    (entry,) = read_entries(text.encode(), "f.yaml")
    return entry


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12) | st.sampled_from(
    ["", " ", "yes", "1e3", "null", "~", "<<", "=", "- a", "a: b", "#", "\t\r\n", "\x07\x7f\x85", "\u2028\ufeff\uffff", "😀",
     "2026-02-14", "0o17", "%YAML", "&a", "!!str", "verify_token", "value", "é", "e\u0301"]
)  # fmt: skip
NUMBER = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(-1e15, 1e15, allow_nan=False)
FREE = st.dictionaries(
    TEXT,
    st.recursive(
        NUMBER | TEXT | st.booleans(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
        max_leaves=8,
    ),
    max_size=3,
)
DETAILS = st.fixed_dictionaries(
    {},
    optional={"notes": TEXT, "benchmark_subset": TEXT, "run": FREE, "artifacts": FREE | st.lists(FREE, max_size=2),
              "runtime_context": FREE, "normalization": FREE, "date": st.sampled_from(["2026-11-21", "2026-11-21T09:00Z"])},
)  # fmt: skip
# Comments everywhere, three styles of entry, a block scalar, unusual quoting and order.
FILE = """# head
- value: 3 # a score
  dataset: {id: "a/b", task_id: first}

  notes: |
    several
    lines   # not a comment

# between
-
  # inside
  dataset: { id: a/b, task_id: 'second' }   # flow
  metrics:
  - metric_id: m
    value: 2.50
- {dataset: {id: a/b, task_id: third}, value: 1} # tail
# foot
"""
PARTS = ["- ", "dataset: ", "{id: a/b}", "{", "}", "[", "]", "\n", "\n  ", "\r\n", "# c", "value: 1", "verify_token: ", "x.y.z", "|\n", ">-\n", "null",
         "'q'", '"', "notes: ", "---", "...", "-", " ", "é😀", "&a ", "*a", "!t ", ", "]  # fmt: skip
