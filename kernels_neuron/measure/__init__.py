"""Verify and bench, as functions from cases to rows."""
