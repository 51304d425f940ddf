"""Arrays of numbers in JSON: read quickly if they are right, and looked at closely if not."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from gemfi.serve.formats import InputFormat
from gemfi.serve.problems import ProblemError, malformed, too_large, unusable

_WORDS: Final = ("true", "false", "null")
_SHOWN: Final = 40
_FEW: Final = 1 << 16  # arrays or commas that are read in no time


def check_size(body: bytes, form: InputFormat, max_inputs: int) -> None:
    """Refuse a body with more arrays or values than any request has; it is not parsed.

    To parse JSON holds the interpreter, so that nothing else is answered meanwhile. Fifteen
    megabytes of empty arrays take seconds, as many of numbers or of an image a fraction of one.
    """
    arrays, values = body.count(b"["), body.count(b",")
    if arrays > max(_FEW, 1 + max_inputs * form.lists):
        raise too_large(f"{arrays:,} arrays, more than {max_inputs} inputs of {form.words()} have")
    if values > max(_FEW, max_inputs * form.numbers):
        raise too_large(f"{values:,} values, more than {max_inputs} inputs of {form.words()} have")


def parse_object(body: bytes) -> tuple[dict[str, Any], str]:
    """The object that a body holds, strictly as JSON says, and the body as text."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise malformed(f"the body is not UTF-8: byte {error.start}") from None
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise malformed(f"the body is not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise malformed("the body is nested too deeply") from None
    except ValueError:  # Python refuses to read integers of thousands of digits
        raise malformed("the body holds a number with too many digits") from None
    if not isinstance(value, dict):
        raise malformed('the body must be an object, such as {"inputs": [...]}')
    return value, text


def _refuse_constant(name: str) -> NoReturn:
    raise unusable("not_finite", f"the body holds {name}, which is no number of JSON")


def to_inputs(
    values: Any, field: str, text: str, form: InputFormat, max_inputs: int
) -> npt.NDArray[Any]:
    """A batch (N, ...) as the model takes it.

    Args:
        values: of `inputs`, or [the value] of `input`.
        field: which of the two.
        text: the body, which tells whether there is anything but numbers in it.
        form: what the model takes.
        max_inputs: how many there may be.
    """
    check_count(values, field, max_inputs)
    try:
        array = np.array(values, np.float64)
    except (ValueError, TypeError, OverflowError):
        raise _flaw(values, field, form) from None
    suspicious = text.count('"') != 2 or any(word in text for word in _WORDS)
    if suspicious or not _fits(array, form):
        flaw = _search(values, form, ())
        if flaw is not None:
            raise _told(flaw, field)
    return array.astype(form.dtype)


def check_count(values: Any, field: str, max_inputs: int) -> None:
    """Refuse what is no array of inputs, and an empty or too long one."""
    if not isinstance(values, list):
        raise unusable("wrong_shape", "inputs must be an array of inputs", field)
    if not values:
        raise unusable("wrong_shape", "give at least one input", field)
    if len(values) > max_inputs:
        raise too_large(f"{len(values)} inputs, more than the {max_inputs} allowed", field)


def _fits(array: npt.NDArray[np.float64], form: InputFormat) -> bool:
    if form.tokens is not None:
        if array.ndim != 2 or not 1 <= array.shape[1] <= form.shape[0]:
            return False
    elif array.shape[1:] != form.shape:
        return False
    low, high = form.bounds()
    if not (low <= array.min() and array.max() <= high):  # NaN is in no interval
        return False
    return not form.is_whole or bool((array == np.floor(array)).all())


_Flaw = tuple[str, str, tuple[int, ...]]  # code, message, place


def _flaw(values: list[Any], field: str, form: InputFormat) -> ProblemError:
    found = _search(values, form, ())
    if found is None:  # texts of different lengths
        return unusable("wrong_shape", "inputs of one request must have one length", field)
    return _told(found, field)


def _told(flaw: _Flaw, field: str) -> ProblemError:
    code, message, place = flaw
    if field == "input":
        place = place[1:]
    return unusable(code, message, field + "".join(f"[{index}]" for index in place))


def _search(value: Any, form: InputFormat, place: tuple[int, ...]) -> _Flaw | None:
    """The first place where a batch is not what the model takes."""
    if len(place) == len(form.shape) + 1:
        return _number_flaw(value, form, place)
    if not isinstance(value, list):
        return "wrong_shape", f"expected an array here; an input is {form.words()}", place
    if place:
        wanted = form.shape[len(place) - 1]
        fits = 1 <= len(value) <= wanted if form.tokens is not None else len(value) == wanted
        if not fits:
            message = f"{len(value)} entries where {wanted} belong; an input is {form.words()}"
            return "wrong_shape", message, place
    for index, each in enumerate(value):
        found = _search(each, form, (*place, index))
        if found is not None:
            return found
    return None


def _number_flaw(value: Any, form: InputFormat, place: tuple[int, ...]) -> _Flaw | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = "an array" if isinstance(value, list) else json.dumps(value)[:_SHOWN]
        code = "wrong_shape" if isinstance(value, list) else "not_a_number"
        return code, f"expected a number here, got {kind}; an input is {form.words()}", place
    low, high = form.bounds()
    if not low <= value <= high:
        shown = str(value) if isinstance(value, float) else _shortened(value)
        code = "out_of_range" if form.is_whole else "not_finite"
        return code, f"{shown} is out of range; an input is {form.words()}", place
    if form.is_whole and value != int(value):
        return "out_of_range", f"{value} is not whole; an input is {form.words()}", place
    return None


def _shortened(value: int) -> str:
    return str(value) if value.bit_length() < 100 else "an integer of many digits"
