"""What is taken out of a result to be counted."""

from __future__ import annotations

import pytest

from issuer.formats.strict_json import JSON
from issuer.issuance.counting import evidence_of

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
