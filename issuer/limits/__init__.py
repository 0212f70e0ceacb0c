"""Limits on identities and source addresses: rate arithmetic and the rules that detect abuse. Pure."""
