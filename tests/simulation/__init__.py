"""`make simulate`: a month of honest results and of every attacker on the real admission script, and the flagged integrations."""
