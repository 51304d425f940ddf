"""`python -m gemfi`."""

from __future__ import annotations

import sys

from gemfi.cli import main

sys.exit(main())
