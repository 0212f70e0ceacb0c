"""The parts of a result that are counted."""

from issuer.formats.strict_json import JSON
from issuer.issuance.counting import evidence_of, is_telling

FILE = "0123456789abcdef" * 4


def test_evidence_is_the_sha256_that_an_artifact_states_in_any_spelling() -> None:
    for spelling in (FILE, FILE.upper(), f"sha256:{FILE}", f"SHA256:{FILE.upper()}"):
        assert evidence_of([{"sha256": spelling}]) == (FILE,)
    nested: list[JSON] = [
        {"log": {"sha256": FILE}, "note": "x"},
        {"sha256": FILE},
        [*[{"name": "x"}] * 20, {"sha256": FILE}],
    ]
    assert [evidence_of(artifacts) for artifacts in nested] == [(FILE,)] * 3
    assert evidence_of([{"sha256": f"{number:064x}"} for number in range(9)]) == tuple(f"{n:064x}" for n in range(8))
    others: list[JSON] = [[{"sha256": FILE[1:]}, {"sha256": f"{FILE}\n"}, {"sha256": 7}, FILE, None], FILE, None]
    assert [evidence_of(artifacts) for artifacts in others] == [()] * 3


def test_only_a_value_of_four_digits_is_hardly_equal_by_chance() -> None:
    short, long = [0.0, 100.0, -62.5, 0.125, 1e-7, 1.25e-7, 123e9], [20.95, 0.1 + 0.2, 1234.0, 1.001e-7, 99.99]
    values = [sign * value for value in short + long for sign in (1, -1)]
    assert [value for value in values if is_telling(value)] == [sign * value for value in long for sign in (1, -1)]
