"""A leaderboard of judged results, as one relying party sees them: `listed` has what it knows of an entry, `ranking`
what stands where (pure), `gather` the judging of a folder, and `written` and `page` the files. LEADERBOARD.md beside it
says what the tables mean.
"""
