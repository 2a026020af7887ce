"""Stored results: found, read, compared, recorded and pruned."""
