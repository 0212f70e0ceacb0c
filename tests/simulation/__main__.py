"""Replay a month on the real admission script, and print the flagged integrations: `make simulate`. Some minutes.

`python -m tests.simulation chosen` prints the month for the choice of the limits, in place of the final month, which was
drawn later; `third` the one before that.
"""

import sys

from issuer.limits.abuse import Abuse
from tests.simulation.attackers import attackers, untellable
from tests.simulation.honest import honest
from tests.simulation.replay import replay
from tests.simulation.report import Month, broken, main_table, month, scaled_table, untellable_table

# Seeds of the honest and of the attackers: for the choice of the limits; a third set, in which 1.16 % of honest days had a
# warning, because an unchanged file caused one every night; and the final one, drawn after that was corrected.
SEEDS = {"chosen": (1, 2), "third": (3, 4), "final": (7, 8)}


def recorded(honest_seed: int, attackers_seed: int, abuse: Abuse) -> Month:
    """Let everyone live a month."""
    everyone = [*attackers(attackers_seed), *untellable(attackers_seed)]
    sent = (request for attacker in everyone for request in attacker.requests)
    return month(replay(honest(honest_seed), abuse), everyone, replay(sent, abuse))


def main(which: str) -> int:
    """Print the tables. Return 1 if a demand does not hold."""
    abuse = Abuse()
    seen = recorded(*SEEDS[which], abuse)
    results = sum(len(answer.request.results) for answer in seen.honest)
    print(f"{len(seen.honest)} honest requests with {results} results, {len(seen.attackers)} attackers\n")
    for table in (main_table, untellable_table, scaled_table):
        print("\n".join([*table(abuse, seen), ""]))
    faults = broken(abuse, seen)
    print(
        "\n".join(faults) or "each attacker within 20 tokens, fewer than 1 % of honest days, no honest identity stopped"
    )
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if sys.argv[1:] else "final"))
