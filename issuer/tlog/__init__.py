"""Merkle trees and text formats of transparency logs: leaves, tiles, notes, checkpoints (C2SP, RFC 6962). Pure."""
