"""Reads what torch's structured trace says: records in, facts and words out; no torch needed."""
