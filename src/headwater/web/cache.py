"""The last few answers, so that saving what is on the screen does not compute it again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar, cast

Found = TypeVar("Found")


class Kept:
    """At most so many values by their keys; what was not asked for longest goes first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Found]) -> Found:
        """The value of `key`, made where it is not kept. Two who ask at once may both make it."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return cast(Found, self._values[key])
        found = make()
        with self._lock:
            self._values[key] = found
            while len(self._values) > self.most:
                self._values.popitem(last=False)
        return found
