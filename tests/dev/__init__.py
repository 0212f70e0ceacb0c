"""Tests of what `issuer dev` plays."""
