"""Who may have what signed: identity providers, registered integrations, and the decision. Pure but for load.py."""
