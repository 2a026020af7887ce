"""Compares the two sides of a shadow call.

``leaves`` takes nested values apart, ``comparison`` judges one leaf, ``gradients``
differentiates a call, ``reference`` settles disputes by a float64 run, and ``sides``
compares two whole calls: outputs, mutations, aliasing, state, gradients, exceptions.
"""
