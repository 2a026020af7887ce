"""Times eager against compiled, and measures what else warm calls cost."""
