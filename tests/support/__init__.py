"""Helpers that several test files share; pytest puts the folder `tests` on the path."""
