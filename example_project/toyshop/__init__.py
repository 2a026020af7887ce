"""Toyshop: a small package of a model's author, whose tests guard its compiled code."""
