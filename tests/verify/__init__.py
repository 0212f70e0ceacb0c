"""The verdict of a relying party."""
