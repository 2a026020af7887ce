"""Compares the two sides of a shadow call.

``side`` runs one of them: ``leaves`` takes its nested values apart, ``state`` what it met,
``gradients`` differentiates it. ``sides`` compares both: ``comparison`` judges one leaf,
``by_design`` knows what compiling changes on purpose, ``errors_raised`` compares exceptions,
``reference`` settles disputes by a float64 run, ``quiet`` looks at what is smaller than the
absolute tolerance, ``extreme`` finds the worst element.
"""
