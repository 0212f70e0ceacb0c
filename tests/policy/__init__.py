"""Tests of the policies: their language, matching and decision."""
