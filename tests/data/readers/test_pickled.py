"""The reader of python batches runs nothing: hostile pickles end in an error, and in nothing else.

`published` writes what Python 2's cPickle wrote for the published files, opcode by opcode.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import pickletools
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemfi.data.readers import pickled
from gemfi.data.readers.pickled import read_pickled_batch
from gemfi.errors import InputError

DATA = np.arange(12, dtype=np.uint8).reshape(3, 4)
RECONSTRUCT = b"cnumpy.core.multiarray\n_reconstruct\n"
NDARRAY = b"cnumpy\nndarray\n"
DTYPE = (
    b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
)


class Writer:
    """Protocol 2 of Python 2: str is a byte string, each object is put in the memo."""

    def __init__(self) -> None:
        self.out, self.memo = io.BytesIO(), 0

    def put(self) -> None:
        self.memo += 1
        small = self.memo < 256
        self.out.write(b"q%c" % self.memo if small else b"r" + struct.pack("<I", self.memo))

    def text(self, value: bytes) -> None:
        small = len(value) < 256
        head = b"U%c" % len(value) if small else b"T" + struct.pack("<i", len(value))
        self.out.write(head + value)
        self.put()

    def number(self, value: int) -> None:
        self.out.write(b"K%c" % value if value < 256 else b"M" + struct.pack("<H", value))

    def list(self, values: list[Any]) -> None:
        self.out.write(b"]")
        self.put()
        for start in range(0, len(values), 1000):
            self.out.write(b"(")
            for value in values[start : start + 1000]:
                self.value(value)
            self.out.write(b"e")

    def array(self, value: np.ndarray[Any, Any]) -> None:
        self.out.write(RECONSTRUCT)
        self.put()
        self.out.write(NDARRAY)
        self.put()
        self.out.write(b"K\x00\x85U\x01b\x87R")
        self.put()
        self.out.write(b"(K\x01")
        for size in value.shape:
            self.number(size)
        self.out.write(b"\x86" + DTYPE + b"\x89")
        self.text(value.tobytes())
        self.out.write(b"tb")

    def value(self, value: Any) -> None:
        kinds = {bytes: self.text, int: self.number, list: self.list, np.ndarray: self.array}
        kinds[type(value)](value)

    def batch(self, entries: dict[bytes, Any]) -> bytes:
        self.out.write(b"\x80\x02}")
        self.put()
        self.out.write(b"(")
        for key, value in entries.items():
            self.text(key)
            self.value(value)
        self.out.write(b"u.")
        return self.out.getvalue()


def published(entries: dict[bytes, Any]) -> bytes:
    return Writer().batch(entries)


BATCH = {
    b"batch_label": b"training batch 1 of 5",
    b"labels": [6, 9, 9],
    b"data": DATA,
    b"filenames": [b"leptodactylus_pentadactylus_s_000004.png", b"camion_s_000148.png", b"x" * 300],
}


def refused(data: bytes, message: str = "some/batch") -> str:
    with pytest.raises(InputError, match=message) as caught:
        read_pickled_batch(data, "some/batch")
    assert str(caught.value).startswith("some/batch")
    assert len(str(caught.value)) < 500
    return str(caught.value)


class TestReading:
    def test_the_published_layout(self) -> None:
        data = published(BATCH)
        batch = read_pickled_batch(data, "batch")
        np.testing.assert_array_equal(batch["data"], DATA)
        assert batch["labels"] == [6, 9, 9]
        assert batch["filenames"] == BATCH[b"filenames"]
        assert batch["batch_label"] == b"training batch 1 of 5"
        # The writer is right: Python reads the same.
        again = pickle.loads(data.replace(b"numpy.core", b"numpy._core"), encoding="bytes")  # noqa: S301
        np.testing.assert_array_equal(again[b"data"], DATA)
        assert again[b"labels"] == [6, 9, 9]

    def test_the_published_size_of_batches_meta(self) -> None:
        """The 158 bytes of `batches.meta` as published: the writer writes what cPickle wrote."""
        names = b"airplane automobile bird cat deer dog frog horse ship truck".split()
        data = published({b"num_cases_per_batch": 10000, b"label_names": names, b"num_vis": 3072})
        assert len(data) == 158
        assert read_pickled_batch(data, "meta")["label_names"] == names

    def test_long_lists(self) -> None:
        labels = [index % 100 for index in range(2500)]
        assert read_pickled_batch(published({b"labels": labels}), "x")["labels"] == labels

    @pytest.mark.parametrize("protocol", [3, 4])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_python_3_has_written_it_again(self, protocol: int, order: Any) -> None:
        entries = {"data": np.array(DATA, order=order), "labels": [1, 300, 70000, 2**40, -1]}
        batch = read_pickled_batch(pickle.dumps(entries, protocol=protocol), "batch")
        np.testing.assert_array_equal(batch["data"], DATA)
        assert batch["labels"] == entries["labels"]

    @given(
        st.dictionaries(
            st.text(max_size=5) | st.binary(max_size=5).map(lambda key: b"b" + key),
            st.lists(st.integers(-(2**63), 2**63 - 1) | st.text() | st.binary() | st.none()),
        )
    )
    def test_plain_dictionaries_survive(self, entries: dict[Any, Any]) -> None:
        read = read_pickled_batch(pickle.dumps(entries, protocol=4), "x")
        keys = [key.decode("latin-1") if isinstance(key, bytes) else key for key in entries]
        assert read == dict(zip(keys, entries.values(), strict=True))


class Call:
    """Pickles as a call of any function with any arguments."""

    def __init__(self, function: Any, *arguments: Any, state: Any = None) -> None:
        self.parts = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> Any:
        return self.parts


class TestHostile:
    @pytest.mark.parametrize("protocol", [2, 3, 4])
    def test_nothing_is_executed(self, tmp_path: Path, protocol: int) -> None:
        trace = tmp_path / "trace"
        attacks = [
            Call(os.system, f"touch {trace}"),
            Call(eval, f"open({str(trace)!r}, 'w')"),
            Call(exec, f"open({str(trace)!r}, 'w')"),
            Call(open, str(trace), "w"),
            Call(os.mkdir, str(trace)),
        ]
        for attack in attacks:
            data = pickle.dumps({"data": attack, "labels": [0]}, protocol=protocol)
            assert "has no place in a CIFAR batch" in refused(data)
            assert not trace.exists()
        # The attacks are real: Python itself runs them.
        pickle.loads(pickle.dumps(attacks[-1], protocol=protocol))  # noqa: S301
        assert trace.exists()

    def test_no_module_is_imported(self) -> None:
        name = "antigravity"
        assert name not in sys.modules
        refused(b"\x80\x02c" + name.encode() + b"\ngeohash\n.", "'antigravity' 'geohash'")
        assert name not in sys.modules

    @pytest.mark.parametrize(
        ("module", "name"),
        [
            ("os", "system"),
            ("posix", "system"),
            ("builtins", "eval"),
            ("__builtin__", "eval"),
            ("builtins", "getattr"),
            ("numpy", "load"),
            ("numpy", "fromfile"),
            ("numpy", "ndarray.tofile"),
            ("numpy", "core.multiarray._reconstruct"),
            ("numpy.core.multiarray", "scalar"),  # unpickles its second argument
            ("numpy._core.numeric", "_frombuffer"),
            ("numpy.core.multiarray", "fromfile"),
            ("copyreg", "_reconstructor"),
            ("_codecs", "encode"),
            ("numpy.testing._private.utils", "runstring"),
        ],
    )
    def test_names(self, module: str, name: str) -> None:
        refused(f"\x80\x02c{module}\n{name}\n.".encode("latin-1"), "has no place")
        stacked = b"".join(b"\x8c%c" % len(text) + text.encode() for text in (module, name))
        refused(b"\x80\x04" + stacked + b"\x93.", "has no place")

    def test_a_name_that_is_not_text(self) -> None:
        refused(b"\x80\x04]\x8c\x01x\x93.", "not text")
        refused(b"\x80\x02c" + b"x" * 1000 + b"\nsystem\n.", "a name without an end")

    @pytest.mark.parametrize(
        "call",
        [
            RECONSTRUCT + NDARRAY + b"(J\xff\xff\xff\x7fJ\xff\xff\xff\x7ftU\x01b\x87R",  # huge
            RECONSTRUCT + NDARRAY + b"K\x00\x85U\x01O\x87R",  # objects
            RECONSTRUCT + DTYPE + b"K\x00\x85U\x01b\x87R",  # another class
            RECONSTRUCT + RECONSTRUCT + b"K\x00\x85U\x01b\x87R",
            RECONSTRUCT + NDARRAY + b"\x85R",
            RECONSTRUCT + b"]R",
            NDARRAY + b"J\xff\xff\xff\x7f\x85\x85R",  # the class itself, called
            NDARRAY + b"K\x01\x85U\x01O\x86R",
            b"cnumpy\ndtype\nU\x01OK\x00K\x01\x87R",
            b"cnumpy\ndtype\nU\x02f8K\x00K\x01\x87R",
            b"cnumpy\ndtype\nU\x09V99999999K\x00K\x01\x87R",
            b"]K\x01\x85R",
            b"NNR",
        ],
    )
    def test_permitted_names_with_other_arguments(self, call: bytes) -> None:
        refused(b"\x80\x02" + call + b".", "a call that does not make a uint8 array")

    @pytest.mark.parametrize(
        ("state", "message"),
        [
            (b"(K\x01K\x04K\x04\x86%s\x89U\x0412..tb", "shape .4, 4. with 4 bytes"),
            (b"(K\x01J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86%s\x89U\x04....tb", "with 4 bytes"),
            (b"(K\x01J\xfc\xff\xff\xffJ\xff\xff\xff\xff\x86%s\x89U\x04....tb", "made of sizes"),
            (b"(K\x01\x88K\x04\x86%s\x89U\x04....tb", "made of sizes"),
            (b"(K\x01(K\x01K\x01K\x01K\x01K\x04t%s\x89U\x04....tb", "1 to 4 sizes"),
            (b"(K\x01)%s\x89U\x01.tb", "1 to 4 sizes"),
            (b"(K\x01K\x04\x85%s\x89]tb", "not uint8"),  # a list of objects in place of bytes
            (b"(K\x01K\x04\x85%s\x89X\x04\x00\x00\x00....tb", "not uint8"),
            (b"(K\x01K\x04\x85%s]U\x04....tb", "order is neither"),
            (b"(K\x02K\x04\x85%s\x89U\x04....tb", "state is not"),
            (b"(K\x01K\x04\x85N\x89U\x04....tb", "not uint8"),
            (b"]b", "state is not"),
            (b"}(U\x09__class__K\x01ub", "state is not"),
        ],
    )
    def test_states_of_an_array(self, state: bytes, message: str) -> None:
        start = RECONSTRUCT + NDARRAY + b"K\x00\x85U\x01b\x87R"
        refused(b"\x80\x02" + start + state.replace(b"%s", DTYPE) + b".", message)

    def test_arrays_of_objects_and_of_other_types(self) -> None:
        for array in (np.array([{}, []], object), np.zeros(3), np.array(["x"]), np.zeros(2, ">i2")):
            for protocol in (3, 4, 5):
                refused(pickle.dumps({"data": array}, protocol=protocol))

    def test_a_dtype_with_a_state_of_its_own(self) -> None:
        hostile = DTYPE.replace(b"NNN", b"]NN")
        refused(b"\x80\x02" + hostile + b".", "not plain uint8")

    def test_a_state_for_something_else(self) -> None:
        refused(b"\x80\x02}}b.", "a state for a dict")
        refused(b"\x80\x02" + NDARRAY + b"}b.", "a state for a _Symbol")


class TestBombs:
    def test_opcodes_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pickled, "MAX_STEPS", 1000)
        assert "offset 1000" in refused(b"\x80\x02" + b"]" * 5000 + b".", "more than 1,000 opcodes")

    def test_lists_that_double_are_never_expanded(self) -> None:
        """A billion laughs: 100 lists, each twice in the next; printing one would take forever."""
        layers = b"".join(b"](h%ch%ceq%c" % (i, i, i + 1) for i in range(100))
        bomb = b"]q\x00" + layers
        message = refused(b"\x80\x02" + bomb + b".", "expected a pickled dictionary, got list")
        assert len(message) < 100
        refused(b"\x80\x04" + bomb + b"h\x05\x93.", "not text")
        read = read_pickled_batch(b"\x80\x02" + bomb + b"}U\x01ah\x64s.", "x")
        assert len(read["a"]) == 2

    def test_tuples_that_double_are_never_hashed_or_compared(self) -> None:
        layers = b"".join(b"h%ch%c\x86q%c" % (i, i, i + 1) for i in range(100))
        bomb = b")q\x00" + layers
        refused(b"\x80\x02" + bomb + b"}h\x64Ns.", "a key that is a tuple")
        refused(b"\x80\x02" + bomb + RECONSTRUCT + b"h\x64R.", "a call that")
        refused(b"\x80\x02" + bomb + DTYPE + b"h\x64b.", "not plain uint8")

    def test_deep_nesting(self) -> None:
        depth = 200_000
        data = b"\x80\x02}U\x01a" + b"]" * depth + b"a" * (depth - 1) + b"s."
        assert len(read_pickled_batch(data, "x")["a"]) == 1

    def test_lengths_beyond_the_file(self) -> None:
        for head in (
            b"T\xff\xff\xff\xff",
            b"T\xff\xff\xff\x7f",
            b"B\xff\xff\xff\xff",
            b"X\0\0\0\x40",
        ):
            refused(b"\x80\x03" + head + b"abc", "truncated: [0-9]+ bytes are needed, 3 are left")
        refused(b"\x80\x02\x8a\xff" + b"\xff" * 255 + b".", "an integer of 255 bytes")

    def test_a_memo_index_costs_nothing(self) -> None:
        assert read_pickled_batch(b"\x80\x02}r\xff\xff\xff\xff.", "x") == {}


class TestMalformed:
    def test_every_truncation(self) -> None:
        data = published(BATCH)
        for end in range(len(data)):
            refused(data[:end])

    def test_trailing_bytes(self) -> None:
        refused(published(BATCH) + b"abc", "3 bytes after the end of the pickle, at offset")

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b".", "nothing on the stack"),
            (b"(.", "nothing on the stack"),
            (b"e.", "no mark"),
            (b"]]e.", "no mark"),
            (b"}(e.", "appending to a dict"),
            (b"]K\x01K\x02s.", "not a dictionary"),
            (b"}(K\x01u.", "not a dictionary"),
            (b"}K\x01K\x02s.", "a key that is a int"),
            (b"h\x07.", "memo 7 was never set"),
            (b"K\x01.", "expected a pickled dictionary, got int"),
            (b"X\x01\0\0\0\xff.", "not UTF-8"),
            (b"\x80\x05.", "protocol 5"),
            (b"\x80\x00.", "protocol 0"),
        ],
    )
    def test_machine(self, body: bytes, message: str) -> None:
        refused(b"\x80\x02" + body, message)

    def test_not_a_pickle_at_all(self) -> None:
        refused(b"PK\x03\x04", "not a pickle of protocol 2")
        refused(pickle.dumps({"a": 1}, protocol=0), "not a pickle of protocol 2")

    def test_every_opcode_that_is_not_needed(self) -> None:
        known = {code.code.encode("latin-1") for code in pickletools.opcodes}
        others = known - set(pickled._HANDLERS) - {b"."}
        # INST, OBJ, NEWOBJ, NEWOBJ_EX, PERSID, BINPERSID, EXT1 and NEXT_BUFFER among them.
        assert {b"i", b"o", b"\x81", b"\x92", b"P", b"Q", b"\x82", b"\x97"} <= others
        for opcode in others:
            refused(b"\x80\x02" + opcode + bytes(20), "has no place in a CIFAR batch, at offset 2")

    @given(st.binary(max_size=60))
    def test_noise_is_an_error_or_a_dictionary(self, noise: bytes) -> None:
        with contextlib.suppress(InputError):
            assert isinstance(read_pickled_batch(b"\x80\x02" + noise, "x"), dict)

    @given(st.data())
    def test_a_changed_byte_is_an_error_or_a_dictionary(self, draw: st.DataObject) -> None:
        data = bytearray(published(BATCH))
        for _ in range(draw.draw(st.integers(1, 4))):
            data[draw.draw(st.integers(2, len(data) - 1))] = draw.draw(st.integers(0, 255))
        with contextlib.suppress(InputError):
            assert isinstance(read_pickled_batch(bytes(data), "x"), dict)
