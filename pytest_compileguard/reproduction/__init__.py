"""Saves a failing call and a program that makes it again.

``script`` is that program, copied as it stands, with its settings filled in; ``surroundings``
names the globals and class attributes that the call met, ``importing``
says how another process finds a function; ``saving`` writes the files.
"""
