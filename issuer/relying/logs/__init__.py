"""A transparency log from a reader's side: files, checkpoint, tree, proofs, monitor."""
