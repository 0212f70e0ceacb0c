"""A leaderboard of judged results, as one relying party sees them: sources, ranking, texts, page (LEADERBOARD.md)."""
