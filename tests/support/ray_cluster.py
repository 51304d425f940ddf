"""A Ray cluster of two workers on this machine, for tests that start commands."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

_CODE = """
import sys
from ray.cluster_utils import Cluster
small = {"num_cpus": 1, "object_store_memory": 100 * 2**20, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=small)
cluster.add_node(**small)
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.shutdown()
"""


@contextlib.contextmanager
def ray_cluster() -> Iterator[tuple[str, dict[str, str]]]:
    """Two machines of one processor each: their address, and the environment of who talks to them.

    Its `TMPDIR` is of their own; not pytest's, since names of sockets must be short.
    """
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        yield from _running(Path(folder))


def _running(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    source = Path(__file__).resolve().parents[2] / "src"
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(source),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(20),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "TMPDIR": str(folder),
    }
    with subprocess.Popen(
        [sys.executable, "-c", _CODE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().strip()
            assert address, "the cluster did not start"
            yield address, environment
        finally:
            process.stdin.close()  # the end of its line, and so of the cluster
