"""A record in the form of Every Eval Ever."""

from tests.support.runs import DATA

RECORD = (DATA / "every_eval_ever.json").read_bytes()
