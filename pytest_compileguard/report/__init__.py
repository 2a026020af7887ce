"""Text and data made from verdicts; nothing here judges, measures or writes."""
