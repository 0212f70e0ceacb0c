"""`python -m issuer`."""

from issuer.cli import main

main()
