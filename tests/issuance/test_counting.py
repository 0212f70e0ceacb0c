"""What is taken out of a result to be counted."""

from __future__ import annotations

import pytest

from issuer.formats.strict_json import JSON
from issuer.issuance.counting import evidence_of, is_telling

FILE = "0123456789abcdef" * 4
NAMED: list[JSON] = [{"sha256": f"{number:064x}"} for number in range(9)]


@pytest.mark.parametrize(
    ("artifacts", "found"),
    [
        ([{"sha256": FILE}], (FILE,)),
        ([{"sha256": FILE.upper()}], (FILE,)),
        ([{"sha256": f"sha256:{FILE}"}], (FILE,)),
        ([{"sha256": f"SHA256:{FILE.upper()}"}], (FILE,)),
        ({"log": {"sha256": FILE}, "note": "x"}, (FILE,)),
        ({"sha256": FILE}, (FILE,)),
        ([{"name": "of no digest"}] * 20 + [{"sha256": FILE}], (FILE,)),
        (NAMED, tuple(f"{number:064x}" for number in range(8))),
        ([{"sha256": FILE[1:]}, {"sha256": f"{FILE}\n"}, {"sha256": 7}, FILE, None], ()),
        (FILE, ()),
        (None, ()),
    ],
)
def test_evidence_is_the_sha256_that_an_artifact_states_in_any_spelling(
    artifacts: JSON, found: tuple[str, ...]
) -> None:
    assert evidence_of(artifacts) == found


@pytest.mark.parametrize("value", [0.0, 100.0, -62.5, 0.125, 1e-7, 1.25e-7, 123e9])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_value_of_three_digits_may_be_equal_by_chance(value: float, sign: int) -> None:
    assert not is_telling(sign * value)


@pytest.mark.parametrize("value", [20.95, 0.1 + 0.2, 1234.0, 1.001e-7, 99.99])
def test_a_value_of_four_digits_is_hardly_equal_by_chance(value: float) -> None:
    assert is_telling(value)
    assert is_telling(-value)
