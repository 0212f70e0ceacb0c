"""Logs as their readers see them: files, checkpoint, tree, proofs, monitor."""
