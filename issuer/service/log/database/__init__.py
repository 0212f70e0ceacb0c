"""The log's database in SQLite or PostgreSQL, and its public readers."""
