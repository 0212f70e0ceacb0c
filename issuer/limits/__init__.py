"""Limits on what one identity may do: rates, and the rules that find abuse. Pure."""
