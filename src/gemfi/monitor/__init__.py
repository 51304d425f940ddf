"""Monitor: is a stream drifting from calibration data?

`martingale.py` ranks scores and bets against their ranks, `stream.py` holds a stream so far,
`monitor.py` is what people use, and `figure.py` draws it. `docs/monitor.md` says what is promised,
and why.
"""

from gemfi.monitor.monitor import Monitor
from gemfi.monitor.stream import MonitorState

__all__ = ["Monitor", "MonitorState"]
