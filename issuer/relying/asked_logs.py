"""What issuers' logs answer about tokens whose proofs are not at hand: a proof, or that there is no such leaf.

Asked for one file at a time, by whoever names the log's URL in the trust file: a log learns which tokens interest whom.
Its answer is believed no more than a proof that lies beside a file, but for its no.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from issuer.errors import SetupError, Undecided
from issuer.relying.log_files import HttpFiles
from issuer.relying.log_proof import says_no
from issuer.tlog.leaf import TokenLeaf
from issuer.tlog.proof import MAX_PROOF_BYTES
from issuer.verify.check_log import AtHand
from issuer.verify.trust import Trust

PATIENCE_S = 10.0
MAX_QUESTIONS = 100  # of one file, which may have a thousand tokens


class AskedLogs(Mapping[TokenLeaf, AtHand]):
    """The answers of the logs of a trust's issuers, where these have a URL and the answer may decide something.

    That is where the log is required, and for a token that has ended by `now` (Unix seconds). A log that does not
    answer is not asked again.
    """

    def __init__(self, trust: Trust, now: int, *, patience_s: float = PATIENCE_S) -> None:
        self._urls = {name: issuer.log.url for name, issuer in trust.issuers.items() if issuer.log}
        self._required, self._now, self._patience_s = "log" in trust.require, now, patience_s
        self._left = MAX_QUESTIONS

    def __getitem__(self, leaf: TokenLeaf) -> AtHand:
        """Ask the log of the leaf's issuer. KeyError where nothing is asked."""
        url = self._urls.get(leaf.iss)
        if not url or not self._left or not (self._required or leaf.exp < self._now):
            raise KeyError(leaf)
        self._left -= 1
        try:
            answer = HttpFiles(url, self._patience_s).ask(
                f"proof?iat={leaf.iat}&token={leaf.token.hex()}", MAX_PROOF_BYTES
            )
        except Undecided as error:
            self._urls[leaf.iss] = ""
            return AtHand(fault=f"the log does not say: {error.detail}")
        except SetupError as error:
            self._urls[leaf.iss] = ""
            return AtHand(fault=f"the log cannot be asked: {error.detail}")
        if answer.status == 200:
            return AtHand(answer.body)
        return AtHand(denied=True) if says_no(answer) else AtHand(fault="the log does not say whether it has it")

    def __iter__(self) -> Iterator[TokenLeaf]:
        """Name none: they are asked for, not listed."""
        return iter(())

    def __len__(self) -> int:
        """Return 0, as nothing is iterated."""
        return 0
