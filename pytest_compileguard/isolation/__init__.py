"""The shadow call: copies of a target and its arguments that start from the same state.

``mirror`` copies Python objects and keeps the copy in step, ``tensors`` copies tensors
with their strides and aliasing, ``ambient`` holds what surrounds a call: random state,
grad mode, autocast and default dtype.
"""
