"""Saves what explains a check: torch's trace, graphs, guards, generated code, tlparse's report.

``tlparse`` runs that program; ``saving`` writes the files. All of it holds source code, so
nothing is saved unless somebody asks.
"""
