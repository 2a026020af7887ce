"""Saves a failing call and a program that makes it again.

``program`` is that program, in files by purpose; ``program_text`` makes one file of
them, with its settings filled in; ``surroundings`` names the globals and class
attributes that the call met, ``importing`` says how another process finds a function;
``saving`` writes the files.
"""
