"""The arithmetic and the texts of transparency logs: trees, leaves, tiles, notes (C2SP, RFC 6962). Pure."""
