"""Downloads that break off, go on, or bring something else."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import pytest

from gemfi.data.registry import download, transfer
from gemfi.data.registry.download import fetch_file
from gemfi.errors import DownloadError, InputError
from support.downloads import (
    BODY,
    HALF,
    OTHER,
    PATH,
    SHA,
    assert_only,
    fetch,
    interrupted,
    remote_at,
)


class TestBreaks:
    @pytest.mark.parametrize("reset", [False, True])
    def test_goes_on_by_itself(self, server: Any, root: Path, reset: bool) -> None:
        server.offer("/images.gz", BODY, cuts=[50_000, 30_000], etag='"1"', reset=reset)
        done = fetch(remote_at(server), root)
        assert done.path.read_bytes() == BODY
        assert (done.downloaded, done.resumed_from) == (len(BODY), 0)
        if not reset:  # which may lose bytes that were on their way
            assert server.ranges == [None, "bytes=50000-", "bytes=80000-"]
        assert_only(root / "set", "images.gz")

    def test_pauses(self, server: Any, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        slept: list[float] = []
        monkeypatch.setattr(time, "sleep", slept.append)
        server.offer("/images.gz", BODY, cuts=[1, 1], etag='"1"')
        fetch_file(remote_at(server), root)
        assert slept == list(download.PAUSES)
        assert slept == sorted(slept)

    def test_gives_up_and_resumes_when_run_again(self, server: Any, root: Path) -> None:
        served = server.offer("/images.gz", BODY, cuts=[40_000] * 3, etag='"1"')
        with pytest.raises(DownloadError) as caught:
            fetch(remote_at(server), root)
        said = str(caught.value)
        assert "\n" not in said
        assert f"{server.url}/images.gz broke off at 120,000 of 200,000 bytes" in said
        assert "3 attempts" in said
        assert f"kept at {root / PATH}.part: run again to resume" in said
        assert_only(root / "set", "images.gz.part", "images.gz.part.meta")
        assert not served.cuts
        done = fetch(remote_at(server), root)
        assert (done.downloaded, done.resumed_from) == (80_000, 120_000)
        assert done.path.read_bytes() == BODY
        assert_only(root / "set", "images.gz")

    def test_without_a_checksum_a_short_file_is_not_accepted(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, cuts=[HALF] * 3, ranges=False)
        with pytest.raises(DownloadError, match=r"is missing: .*closed \(3 attempts\)"):
            fetch(remote_at(server, checksum=None), root)
        assert not (root / PATH).exists()

    def test_chunks_that_end_early(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, cuts=[HALF] * 3, chunked=True, ranges=False)
        with pytest.raises(DownloadError, match="is missing"):
            fetch(remote_at(server, checksum=None), root)
        assert not (root / PATH).exists()

    def test_no_length_and_no_checksum(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, length=False)
        with pytest.raises(DownloadError, match="without a length"):
            fetch(remote_at(server, checksum=None), root)
        assert not (root / PATH).exists()
        assert fetch(remote_at(server), root).path.read_bytes() == BODY

    def test_no_length_and_a_break(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, length=False, cuts=[HALF], etag='"1"')
        done = fetch(remote_at(server, size=len(BODY)), root)
        assert done.path.read_bytes() == BODY
        assert server.ranges == [None, f"bytes={HALF}-"]

    def test_silence(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY, hold=HALF, etag='"1"', ranges=False)
        start = time.monotonic()
        with pytest.raises(DownloadError, match=r"broke off at 100,000 of 200,000 .*timed out"):
            fetch(remote_at(server), root, timeout=0.1)
        assert time.monotonic() - start < 6.0
        assert len(server.requests) == 3


class TestResume:
    def test_asks_for_the_rest_of_the_same_version(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server), etag='"1"')
        done = fetch(remote_at(server), root)
        assert (done.downloaded, done.resumed_from) == (len(BODY) - HALF, HALF)
        assert done.path.read_bytes() == BODY
        assert server.ranges == [f"bytes={HALF}-"]
        assert server.requests[0][1]["if-range"] == '"1"'

    @pytest.mark.parametrize("etag", [None, 'W/"1"'])
    def test_a_date_where_there_is_no_strong_tag(
        self, server: Any, root: Path, etag: str | None
    ) -> None:
        date = "Sat, 01 Jan 2022 00:00:00 GMT"
        interrupted(server, root, remote_at(server, checksum=None), etag=etag, modified=date)
        done = fetch(remote_at(server, checksum=None), root)
        assert server.requests[0][1]["if-range"] == date
        assert done.resumed_from == HALF
        assert done.path.read_bytes() == BODY

    @pytest.mark.parametrize("if_range", [True, False])
    def test_another_version_starts_anew(self, server: Any, root: Path, if_range: bool) -> None:
        """Also when the server joins them regardless of If-Range."""
        remote = remote_at(server, checksum=None)
        served = interrupted(server, root, remote, etag='"1"', if_range=if_range)
        served.body, served.etag = OTHER, '"2"'
        done = fetch(remote, root)
        assert done.path.read_bytes() == OTHER
        assert (done.downloaded, done.resumed_from) == (len(OTHER), 0)

    def test_another_version_between_two_attempts(self, server: Any, root: Path) -> None:
        served = server.offer("/images.gz", BODY, cuts=[HALF], etag='"1"')
        real = time.sleep

        def change(seconds: float) -> None:
            served.body, served.etag = OTHER, '"2"'
            real(0)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(transfer.time, "sleep", change)
            done = fetch(remote_at(server, checksum=None), root)
        assert done.path.read_bytes() == OTHER

    def test_no_version_and_no_checksum_starts_anew(self, server: Any, root: Path) -> None:
        remote = remote_at(server, checksum=None)
        served = interrupted(server, root, remote)
        served.body = OTHER
        assert fetch(remote, root).path.read_bytes() == OTHER
        assert server.ranges == [None]

    def test_no_version_but_a_checksum_goes_on(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server))
        assert fetch(remote_at(server), root).resumed_from == HALF
        assert "if-range" not in server.requests[0][1]

    def test_the_tag_of_one_server_says_nothing_to_another(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server, checksum=None), etag='"1"')
        server.offer(f"/{PATH}", OTHER, etag='"1"')
        done = fetch(remote_at(server, checksum=None), root, mirror=server.url)
        assert done.path.read_bytes() == OTHER
        assert server.ranges == [None]

    def test_a_server_that_knows_no_ranges(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server), etag='"1"', ranges=False)
        done = fetch(remote_at(server), root)
        assert server.ranges == [f"bytes={HALF}-"]
        assert (done.downloaded, done.resumed_from) == (len(BODY), 0)
        assert done.path.read_bytes() == BODY

    def test_a_server_that_starts_elsewhere(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server), etag='"1"', shift=-10)
        done = fetch(remote_at(server), root)
        assert server.ranges == [f"bytes={HALF}-", None]
        assert done.path.read_bytes() == BODY

    @pytest.mark.parametrize(
        ("part", "checksum", "ranges"),
        [
            (BODY, SHA, ["bytes=200000-"]),  # whole: nothing more is needed
            (BODY + b"x", SHA, ["bytes=200001-", None]),
            (BODY, None, [None]),  # nothing says that it is BODY
        ],
    )
    def test_a_part_that_has_it_all(
        self, server: Any, root: Path, part: bytes, checksum: str | None, ranges: list[str | None]
    ) -> None:
        (root / "set").mkdir(parents=True)
        (root / f"{PATH}.part").write_bytes(part)
        server.offer("/images.gz", BODY)
        done = fetch(remote_at(server, checksum=checksum), root)
        assert done.path.read_bytes() == BODY
        assert server.ranges == ranges
        assert done.downloaded == len(BODY) * ranges.count(None)

    def test_a_whole_part_of_the_same_version_but_no_checksum(
        self, server: Any, root: Path
    ) -> None:
        """A 416 does not say of which version it is."""
        remote = remote_at(server, checksum=None)
        interrupted(server, root, remote, etag='"1"')
        (root / f"{PATH}.part").write_bytes(OTHER)
        assert fetch(remote, root).path.read_bytes() == BODY
        assert server.ranges == ["bytes=200000-", None]

    def test_a_damaged_note(self, server: Any, root: Path) -> None:
        interrupted(server, root, remote_at(server))
        (root / f"{PATH}.part.meta").write_text("[]")
        with pytest.raises(InputError, match=r"images\.gz\.part\.meta is damaged: delete it"):
            fetch(remote_at(server), root)


class TestWrong:
    @pytest.mark.parametrize("kind", ["md5", "sha1", "sha256"])
    def test_contents(self, server: Any, root: Path, kind: str) -> None:
        server.offer("/images.gz", OTHER)
        expected, found = (f"{kind}:{hashlib.new(kind, x).hexdigest()}" for x in (BODY, OTHER))
        with pytest.raises(DownloadError) as caught:
            fetch(remote_at(server, checksum=expected), root)
        said = str(caught.value)
        assert f"{PATH} from {server.url}/images.gz is not the published file" in said
        assert f"expected {expected}, found {found}" in said
        assert "\n" not in said
        assert len(server.requests) == 1
        assert_only(root / "set")

    def test_the_second_half(self, server: Any, root: Path) -> None:
        served = interrupted(server, root, remote_at(server))
        served.body = OTHER
        with pytest.raises(DownloadError, match="is not the published file"):
            fetch(remote_at(server), root)
        assert_only(root / "set")
        served.body = BODY
        assert fetch(remote_at(server), root).path.read_bytes() == BODY

    @pytest.mark.parametrize("chunked", [False, True])
    @pytest.mark.parametrize("size", [len(BODY) - 1, 10])
    def test_too_long(self, server: Any, root: Path, chunked: bool, size: int) -> None:
        server.offer("/images.gz", BODY, chunked=chunked)
        with pytest.raises(DownloadError, match=f"expected {size:,} bytes, .* [0-9,]+"):
            fetch(remote_at(server, checksum=None, size=size), root)
        assert_only(root / "set")

    def test_endless(self, server: Any, root: Path) -> None:
        """It does not fill the disk: what is too long already is not read to its end."""
        server.offer("/images.gz", BODY, chunked=True, hold=HALF)
        with pytest.raises(DownloadError, match="expected 10 bytes"):
            fetch(remote_at(server, size=10), root, timeout=0.5)
        assert len(server.requests) == 1
        assert_only(root / "set")

    def test_too_short(self, server: Any, root: Path) -> None:
        server.offer("/images.gz", BODY)
        with pytest.raises(DownloadError, match="expected 200,001 bytes, the server has 200,000"):
            fetch(remote_at(server, size=len(BODY) + 1), root)
        assert len(server.requests) == 1
        assert_only(root / "set")
