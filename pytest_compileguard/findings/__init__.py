"""Judges what was seen, one room for each kind of number; ``verdict`` puts them together."""
