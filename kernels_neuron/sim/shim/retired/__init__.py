"""Modules that older NKI versions had and newer ones moved or dropped: they always import, whatever the version."""
