"""Strict readers and writers of JSON, YAML, JCS (RFC 8785) and JOSE (RFC 7515, 7517, 7638), one file for each. Pure.

They know bytes and grammar, and refuse any text that two readers could understand differently (contract 2 and 3).
"""
