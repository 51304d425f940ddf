"""Monitor: is a stream drifting from calibration data?

`ranks.py` gives p-values, `betting.py` bets on them, `stream.py` holds a stream so far,
`monitor.py` is what people use. `docs/monitor.md` says what is promised, and why.
"""

from gemfi.monitor.monitor import Monitor
from gemfi.monitor.state import MonitorState

__all__ = ["Monitor", "MonitorState"]
