"""The texts of `--pfc` and `--ecn`."""

from __future__ import annotations

import re

from echelon.model.documents import DocumentError
from echelon.model.quantities import QuantityError, excerpt, size_bytes
from echelon_site.switch_config.queues import EcnMarking

_PERCENT = re.compile(r"(\d{1,3}) ?%")


def lossless_queues(text: str | None) -> frozenset[int] | None:
    """Return the queues in a text such as ``3,4`` or ``none``. Raises `DocumentError`."""
    if text is None:
        return None
    if text == "none":
        return frozenset()
    queues = set()
    for word in text.split(","):
        queue = word.strip()
        # Queue 0 is best effort. On switches, its priority group is that of all lossy classes.
        if not re.fullmatch("[1-7]", queue):
            reason = (
                f"{excerpt(queue)} cannot be lossless (write queues 1 to 7, as in 3,4, or none)"
            )
            raise DocumentError("--pfc", "", reason, code="not-allowed")
        queues.add(int(queue))
    return frozenset(queues)


def ecn_marking(text: str | None) -> EcnMarking | None:
    """Return the marking in a text such as ``1 MiB,2 MiB,5%``. Raises `DocumentError`."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    percent = _PERCENT.fullmatch(words[-1])
    if len(words) != 3 or percent is None or int(percent[1]) > 100:
        reason = f"{excerpt(text)} is no marking (write two sizes and a part: 1 MiB,2 MiB,5%)"
        raise DocumentError("--ecn", "", reason)
    try:
        least, most = map(size_bytes, words[:2])
    except QuantityError as error:
        raise DocumentError("--ecn", "", str(error)) from None
    if least > most:
        reason = f"{words[0]} is more than {words[1]} (write the smaller size first)"
        raise DocumentError("--ecn", "", reason, code="out-of-range")
    return EcnMarking(least, most, int(percent[1]))
