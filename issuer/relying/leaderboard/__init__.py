"""One relying party's leaderboard of judged results: sources, ranking, text formats, page (LEADERBOARD.md)."""
