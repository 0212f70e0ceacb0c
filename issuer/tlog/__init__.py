"""Transparency logs: Merkle trees and their proofs. Pure."""
