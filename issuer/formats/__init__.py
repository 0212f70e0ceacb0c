"""Formats, each read strictly and known in one place: JSON, YAML, JCS (RFC 8785), JOSE (RFC 7515, 7517, 7638). Pure.

Knows bytes and grammar, and refuses what two readers could understand differently (contract sections 2 and 3).
"""
