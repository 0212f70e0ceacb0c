"""Replay a month on the real admission script, and print who was flagged: `make simulate`. Some minutes.

`python -m tests.simulation chosen` prints the month that the limits were chosen on, in place of the one that was drawn
when they stood; `third` the one before that.
"""

from __future__ import annotations

import sys

from issuer.limits.abuse import Abuse
from tests.simulation.attackers import attackers, untellable
from tests.simulation.honest import honest
from tests.simulation.replay import replay
from tests.simulation.report import Month, broken, main_table, month, scaled_table, untellable_table

# Seeds of the honest and of the attackers: those that the limits were chosen on; a third set, on which 1.16 % of honest days
# had a warning, because a file that never changes was told every night; and the final one, drawn when that was mended.
SEEDS = {"chosen": (1, 2), "third": (3, 4), "final": (7, 8)}


def recorded(honest_seed: int, attackers_seed: int, abuse: Abuse) -> Month:
    """Let everyone live a month."""
    everyone = [*attackers(attackers_seed), *untellable(attackers_seed)]
    sent = (request for attacker in everyone for request in attacker.requests)
    return month(replay(honest(honest_seed), abuse), everyone, replay(sent, abuse))


def main(which: str) -> int:
    """Print the tables. 1 where a demand does not hold."""
    abuse = Abuse()
    seen = recorded(*SEEDS[which], abuse)
    results = sum(len(answer.request.results) for answer in seen.honest)
    print(f"{len(seen.honest)} honest requests with {results} results, {len(seen.attackers)} attackers\n")
    for table in (main_table, untellable_table, scaled_table):
        print("\n".join([*table(abuse, seen), ""]))
    faults = broken(abuse, seen)
    print("\n".join(faults) or "each attacker within 20 tokens, fewer than 1 % of honest days, nobody stopped")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if sys.argv[1:] else "final"))
