"""Spaces of named parameters: numbers, logarithms, whole numbers, categories.

A :class:`Space` is a box with names. A point in it has one coordinate for each parameter that
varies, and models see these coordinates:

* for a :class:`Float`, the number itself, or its logarithm to base 10 with ``log=True``;
* for an :class:`Integer`, the integer, or its logarithm with ``log=True``. Only logarithms of
  integers are then points, so that two points never represent the same value;
* for a :class:`Categorical`, the index of the value, from 0. Without an order, a model should see
  one column per value (one-hot encoding), which :meth:`Space.input_transform` provides;
* a :class:`Fixed` parameter has no coordinate.

Users read and write native values by name: :attr:`.Query.parameters`, :meth:`Space.decode`,
:meth:`Space.encode`.
"""

from botorch_bandits.spaces.parameters import Categorical, Fixed, Float, Integer, Parameter
from botorch_bandits.spaces.space import Space

__all__ = ["Categorical", "Fixed", "Float", "Integer", "Parameter", "Space"]
