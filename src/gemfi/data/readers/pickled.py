r"""CIFAR's python batches without pickle: the opcodes such a file uses, and nothing that calls.

A pickle is a program. `pickle.Unpickler` runs it, and even with a `find_class` that allows only
numpy's own functions it calls them with arguments from the file. Here no name of the file is ever
looked up and nothing is ever called: the three names that an array needs are symbols, the two
calls that an array needs are patterns with exact arguments, and an array is its bytes.

The published files are protocol 2, written by Python 2. The opcodes of protocols 3 and 4 are read
as well, for batches that Python 3 has written again.

What bounds memory: the file is in memory already; an opcode makes at most one small object; their
number is limited; integers have at most 8 bytes; bytes and text are slices of the file.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from gemfi.errors import InputError

MAX_STEPS: Final = 2_000_000
"""Opcodes in one file; the largest published one, CIFAR-100 train, has about 200,000."""


class _Symbol(Enum):
    RECONSTRUCT = "_reconstruct"
    NDARRAY = "ndarray"
    DTYPE = "dtype"
    MARK = "mark"


_SYMBOLS: Final = {
    ("numpy.core.multiarray", "_reconstruct"): _Symbol.RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _Symbol.RECONSTRUCT,
    ("numpy", "ndarray"): _Symbol.NDARRAY,
    ("numpy", "dtype"): _Symbol.DTYPE,
}
_UINT8_STATE: Final = (3, b"|", None, None, None, -1, -1, 0)


class _UInt8:
    """The dtype `u1`, the only one such a file holds."""


class _Bytes:
    """A uint8 array: empty until its state is built."""

    array: npt.NDArray[np.uint8] | None = None


def read_pickled_batch(data: bytes, name: str) -> dict[str, Any]:
    """Read a pickled dictionary of numbers, text, lists and uint8 arrays.

    Args:
        data: the whole file.
        name: of the file, for messages.

    Returns:
        Keys as text, uint8 arrays as numpy arrays (read-only, over `data`). Byte strings and text
        stay what they are; a list holds whatever the file says, so check it before use.
    """
    result = _Machine(data, name).run()
    if not isinstance(result, dict):
        raise InputError(f"{name}: expected a pickled dictionary, got {type(result).__name__}")
    return {
        key.decode("latin-1") if isinstance(key, bytes) else key: (
            value.array if isinstance(value, _Bytes) else value
        )
        for key, value in result.items()
    }


class _Machine:
    """A stack, a memo and a position in the file."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name
        self.at = self.opcode_at = 0
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        if self.data[:1] != b"\x80":
            self.fail("not a pickle of protocol 2 or later, which begins with 80")
        steps = 0
        while (opcode := self.next_opcode()) != b".":
            handler = _HANDLERS.get(opcode)
            if handler is None:
                self.fail(f"opcode {opcode!r} (0x{opcode.hex()}) has no place in a CIFAR batch")
            handler(self)
            steps += 1
            if steps == MAX_STEPS:
                self.fail(f"more than {MAX_STEPS:,} opcodes")
        if self.at != len(self.data):
            self.fail(f"{len(self.data) - self.at} bytes after the end of the pickle")
        return self.pop()

    def next_opcode(self) -> bytes:
        self.opcode_at = self.at
        return self.take(1)

    def fail(self, problem: str) -> NoReturn:
        raise InputError(f"{self.name}: {problem}, at offset {self.opcode_at}; nothing was run")

    def take(self, count: int) -> bytes:
        end = self.at + count
        if end > len(self.data):
            self.fail(f"truncated: {count} bytes are needed, {len(self.data) - self.at} are left")
        part = self.data[self.at : end]
        self.at = end
        return part

    def skip(self, count: int) -> None:
        self.take(count)

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def line(self) -> str:
        end = self.data.find(b"\n", self.at, self.at + 256)
        if end < 0:
            self.fail("a name without an end")
        text = self.data[self.at : end].decode("latin-1")
        self.at = end + 1
        return text

    def text(self, count: int) -> str:
        try:
            return self.take(count).decode("utf-8")
        except UnicodeDecodeError:
            self.fail("text that is not UTF-8")

    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _Symbol.MARK:
            self.fail("nothing on the stack")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        index = len(self.stack) - 1
        while index >= 0 and self.stack[index] is not _Symbol.MARK:
            index -= 1
        if index < 0:
            self.fail("no mark on the stack")
        items = self.stack[index + 1 :]
        del self.stack[index:]
        return items

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def push_tuple(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(items)))

    def remember(self, index: int) -> None:
        value = self.pop()
        self.push(value)
        self.memo[index] = value

    def recall(self, index: int) -> None:
        if index not in self.memo:
            self.fail(f"memo {index} was never set")
        self.push(self.memo[index])

    def protocol(self) -> None:
        version = self.number("<B")
        if not 2 <= version <= 4:
            self.fail(f"protocol {version}; expected 2 (as published), 3 or 4")

    def integer(self) -> None:
        size = self.number("<B")
        if size > 8:
            self.fail(f"an integer of {size} bytes")
        self.push(int.from_bytes(self.take(size), "little", signed=True))

    def extend(self, items: list[Any]) -> None:
        target = self.pop()
        if not isinstance(target, list):
            self.fail(f"appending to a {type(target).__name__}")
        target.extend(items)
        self.push(target)

    def update(self, items: list[Any]) -> None:
        target = self.pop()
        if not isinstance(target, dict) or len(items) % 2:
            self.fail("setting items of something that is not a dictionary")
        for key in items[::2]:
            if not isinstance(key, str | bytes):  # a nested tuple can take forever to hash
                self.fail(f"a key that is a {type(key).__name__}")
        target.update(zip(items[::2], items[1::2], strict=True))
        self.push(target)

    def find(self, module: Any, name: Any) -> None:
        """The name of something that unpickling would import: one of three, or refused."""
        if not isinstance(module, str) or not isinstance(name, str):
            self.fail("a name that is not text")
        symbol = _SYMBOLS.get((module, name))
        if symbol is None:
            self.fail(f"the name {module[:80]!r} {name[:80]!r} has no place in a CIFAR batch")
        self.push(symbol)

    def call(self) -> None:
        """`_reconstruct(ndarray, (0,), 'b')` or `dtype('u1', 0, 1)`, to the letter."""
        arguments, function = self.pop(), self.pop()
        plain = _plain(arguments)
        if function is _Symbol.RECONSTRUCT and plain == (_Symbol.NDARRAY, (0,), b"b"):
            self.push(_Bytes())
        elif function is _Symbol.DTYPE and plain == (b"u1", 0, 1):
            self.push(_UInt8())
        else:
            self.fail("a call that does not make a uint8 array, the only one that a batch holds")

    def build(self) -> None:
        state, target = self.pop(), self.pop()
        if isinstance(target, _UInt8):
            if _plain(state) != _UINT8_STATE:
                self.fail("a dtype that is not plain uint8")
        elif isinstance(target, _Bytes):
            target.array = self.array(state)
        else:
            self.fail(f"a state for a {type(target).__name__}")
        self.push(target)

    def array(self, state: Any) -> npt.NDArray[np.uint8]:
        """(version, shape, dtype, is Fortran order, bytes), sizes compared before anything else."""
        if not isinstance(state, tuple) or len(state) != 5 or state[0] != 1:
            self.fail("an array whose state is not (1, shape, dtype, order, bytes)")
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _UInt8) or not isinstance(data, bytes):
            self.fail("an array that is not uint8")
        if not isinstance(shape, tuple) or not 1 <= len(shape) <= 4:
            self.fail("an array whose shape is not 1 to 4 sizes")
        if any(type(size) is not int or size < 0 for size in shape):
            self.fail("an array whose shape is not made of sizes")
        if math.prod(shape) != len(data):
            self.fail(f"an array of shape {shape} with {len(data)} bytes")
        if not isinstance(fortran, bool):
            self.fail("an array whose order is neither true nor false")
        return np.frombuffer(data, np.uint8).reshape(shape, order="F" if fortran else "C")


def _plain(value: Any) -> Any:
    """Text in a tuple as bytes: Python 2 and 3 differ in it."""
    if isinstance(value, tuple) and len(value) <= len(_UINT8_STATE):
        return tuple(item.encode() if isinstance(item, str) else item for item in value)
    return value


_HANDLERS: Final[dict[bytes, Callable[[_Machine], None]]] = {
    b"\x80": _Machine.protocol,
    b"\x95": lambda m: m.skip(8),  # FRAME: its length is of no use here
    b"(": lambda m: m.push(_Symbol.MARK),
    b"}": lambda m: m.push({}),
    b"]": lambda m: m.push([]),
    b")": lambda m: m.push(()),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"K": lambda m: m.push(m.number("<B")),
    b"M": lambda m: m.push(m.number("<H")),
    b"J": lambda m: m.push(m.number("<i")),
    b"\x8a": _Machine.integer,  # LONG1
    b"U": lambda m: m.push(m.take(m.number("<B"))),  # SHORT_BINSTRING: text of Python 2
    b"T": lambda m: m.push(m.take(m.number("<I"))),  # BINSTRING
    b"C": lambda m: m.push(m.take(m.number("<B"))),  # SHORT_BINBYTES
    b"B": lambda m: m.push(m.take(m.number("<I"))),  # BINBYTES
    b"\x8c": lambda m: m.push(m.text(m.number("<B"))),  # SHORT_BINUNICODE
    b"X": lambda m: m.push(m.text(m.number("<I"))),  # BINUNICODE
    b"q": lambda m: m.remember(m.number("<B")),
    b"r": lambda m: m.remember(m.number("<I")),
    b"\x94": lambda m: m.remember(len(m.memo)),  # MEMOIZE
    b"h": lambda m: m.recall(m.number("<B")),
    b"j": lambda m: m.recall(m.number("<I")),
    b"a": lambda m: m.extend([m.pop()]),
    b"e": lambda m: m.extend(m.pop_to_mark()),
    b"s": lambda m: m.update([m.pop(), m.pop()][::-1]),
    b"u": lambda m: m.update(m.pop_to_mark()),
    b"t": lambda m: m.push(tuple(m.pop_to_mark())),
    b"\x85": lambda m: m.push_tuple(1),
    b"\x86": lambda m: m.push_tuple(2),
    b"\x87": lambda m: m.push_tuple(3),
    b"c": lambda m: m.find(m.line(), m.line()),
    b"\x93": lambda m: m.find(*[m.pop(), m.pop()][::-1]),  # STACK_GLOBAL
    b"R": _Machine.call,
    b"b": _Machine.build,
}
