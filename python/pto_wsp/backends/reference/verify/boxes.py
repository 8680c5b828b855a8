"""Whether two boxes of one tensor share an element, exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pto_wsp.backends.reference.region import DimRange


def boxes_meet(a: Sequence[DimRange], b: Sequence[DimRange]) -> bool:
    return all(_ranges_meet(x, y) for x, y in zip(a, b, strict=True))


def _ranges_meet(a: DimRange, b: DimRange) -> bool:
    if a.extent == 0 or b.extent == 0:
        return False
    low = max(a.start, b.start)
    high = min(a.start + (a.extent - 1) * a.step, b.start + (b.extent - 1) * b.step)
    if low > high:
        return False
    p, q = (1 if x.extent == 1 else x.step for x in (a, b))
    common = math.gcd(p, q)
    if (b.start - a.start) % common != 0:
        return False
    # The smallest common element at or above `low`: a.start + p * k = b.start modulo q.
    k = (b.start - a.start) // common * pow(p // common, -1, q // common) % (q // common)
    first = a.start + p * k
    period = p * q // common
    first += -(-max(low - first, 0) // period) * period
    while first - period >= low:
        first -= period
    return first <= high
