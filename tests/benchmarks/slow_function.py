"""What the workers of a cluster evaluate.

It takes a moment, in which they can be killed.
"""

import time
from typing import Any


def slow_value(x: Any) -> float:
    """Return a reward after a moment, in which a worker can be killed."""
    time.sleep(0.5)
    return -float((x[-1] - 0.3) ** 2)
