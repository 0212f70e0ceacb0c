"""What a relying party is told."""
