"""A good caller beside another's large bodies. `python -m tests.bench.large_bodies`, part of `make bench`."""

import os
import sys
import tempfile
from pathlib import Path

from issuer.dev.provider import LocalProvider
from tests.support.http_load import Run
from tests.support.large_bodies import CALLERS, beside, is_quarantined, quiet, register_callers, requests_of
from tests.support.running import running, write_folder

# The most that the slowest answers may grow beside them.
MORE_MS = 50.0


def main() -> None:
    """Run everything: each row is pairs of a quiet round and one beside 14 MB, one after the other."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"large bodies: 14 MB a round on {os.cpu_count()} cores for all; load average {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as made, LocalProvider() as provider:
        folder = Path(made) / "large"
        write_folder(folder, provider, es256=True)
        register_callers(folder)
        with running(folder, provider) as live:
            quiet(live, 100)
            is_quarantined(live)
            for caller in CALLERS:
                for connections in (1, 8, 64):
                    alone, together = Run(), Run()
                    for _ in range(pairs):
                        alone += quiet(live, 100)
                        together += beside(live, requests_of(live, caller, connections), connections, at_least=100)[0]
                    more_ms = together.quantile_ms(0.99) - alone.quantile_ms(0.99)
                    print(
                        f"  beside one {caller + ',':<19} {connections:2} connections"
                        f"  p50 {alone.quantile_ms(0.5):6.2f} -> {together.quantile_ms(0.5):6.2f} ms"
                        f"  p99 {alone.quantile_ms(0.99):6.2f} -> {together.quantile_ms(0.99):6.2f} ms"
                        f"  ({more_ms:+.1f} of {MORE_MS:.0f}{'' if more_ms <= MORE_MS else ', TOO MUCH'})"
                        f"  {dict(together.statuses)}"
                    )


if __name__ == "__main__":
    main()
