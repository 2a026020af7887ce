"""The program that makes a saved call again, in files by purpose.

``reproduction.program_text`` makes one file of them, which needs no other; so they
import nothing of the package but each other, and their names are all different.
"""
