"""Results on disk that the explorer opens: what `evaluate`, `run` and `bias` wrote, each behind one small interface.

Which ones is said when the server starts. A request names one of these by its id, never by a path.
"""

from .finding import stores_in
from .interface import Curves, Sheet, Store

__all__ = ["Curves", "Sheet", "Store", "stores_in"]
