"""The shadow call: copies of a target and its arguments that start from the same state.

``mirror`` makes copies and keeps them in step: of ``objects``, ``containers``, functions
(``twin_functions``) and ``tensors``, with their strides and aliasing; ``pairs`` knows which copy is
whose, ``keys`` how containers name what they are found by. ``ambient`` holds what surrounds a call
(random state, torch's modes, where new tensors lie), ``surroundings`` what it meets in classes,
globals and helpers, of which ``snapshot`` keeps the ``contents`` (``inner_state`` of generators and
byte arrays) and ``ownership`` says whose they are. ``shared`` and ``fingerprint`` watch what is not
copied, ``quiet`` keeps shadow calls silent.
"""
