"""The unpacked sizes of the pages of a Parquet file, read from the page headers before unpacking.

The footer of the file may be wrong; a library that unpacks the pages relies on the headers. They
are structs of Thrift's compact protocol
(github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# bytes that are searched for a page's header: it contains the smallest and largest value, truncated
HEADER = 1 << 16
DEEPEST = 8  # structs inside one another; a page header has three
_TYPE, _UNPACKED, _PACKED = 1, 2, 3  # fields of a page header …
_DATA, _DATA_2 = 5, 8
_VALUES, _ENCODING, _ENCODING_2 = 1, 2, 4  # … and of the structs in it that are about data
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_IS_DICTIONARY = 2  # a page's type
# fields at the end of a file: row groups, their columns, what is known of one, counts of its levels
_GROUPS, _COLUMNS, _ABOUT, _STATISTICS, _HISTOGRAMS = 4, 1, 3, 16, (2, 3)
_DELTA_TEXTS = 7  # an encoding: each text is what it shares with the one before it, and a rest


@dataclass(frozen=True)
class Pages:
    """The pages of a column in one row group, unpacked."""

    size: int  # bytes of all of them
    values: int
    shared: int  # bytes of those whose texts may stand in any number of rows
    delta: bool  # whether a text may continue the previous one


def pages_of(file: Any, column: Any) -> Pages:
    """The sizes that the pages of a column chunk declare; raises ValueError if they are damaged.

    `column` is pyarrow's ColumnChunkMetaData.
    """
    offsets = (column.dictionary_page_offset, column.data_page_offset)
    place = min(offset for offset in offsets if offset)  # there may be no dictionary
    end = place + column.total_compressed_size
    size = values = shared = 0
    delta = False
    while place < end:
        file.seek(place)
        header = _Struct(file.read(min(HEADER, end - place)))
        fields = header.fields()
        unpacked, packed = fields.get(_UNPACKED), fields.get(_PACKED)
        if not isinstance(unpacked, int) or not isinstance(packed, int):
            raise ValueError("a page does not declare its size")
        if min(unpacked, packed) < 0:
            raise ValueError("a page does not declare its size")
        place += header.place + packed
        size += unpacked
        of_data, encoding = fields.get(_DATA_2), _ENCODING_2
        if _DATA in fields:
            of_data, encoding = fields[_DATA], _ENCODING
        if isinstance(of_data, dict):
            values += max(0, int(of_data.get(_VALUES) or 0))
            delta = delta or of_data.get(encoding) == _DELTA_TEXTS
        if delta or fields.get(_TYPE) == _IS_DICTIONARY:
            shared += unpacked
    return Pages(size, values, shared, delta)


def require_levels(file: Any, size: int, levels: Sequence[tuple[int, int]]) -> None:
    """Raises ValueError where the end of a file counts other levels than its columns have.

    `levels` are the largest repetition and definition level of each column. Arrow's library ends
    the process over such a count when it is asked for a column.
    """
    file.seek(size - 8)
    length = int.from_bytes(file.read(4), "little")
    file.seek(max(0, size - 8 - length))
    groups = _Struct(file.read(length)).fields().get(_GROUPS)
    for group in _structs(groups):
        for column, most in zip(_structs(group.get(_COLUMNS)), levels, strict=False):
            statistics = _struct(_struct(column.get(_ABOUT)).get(_STATISTICS))
            counts = [statistics.get(number) or [] for number in _HISTOGRAMS]
            if any(len(count) not in (0, 1 + top) for count, top in zip(counts, most, strict=True)):
                raise ValueError("its counts of levels do not match its columns")


def _struct(value: Any) -> dict[int, Any]:
    return value if isinstance(value, dict) else {}


def _structs(values: Any) -> list[dict[int, Any]]:
    if not isinstance(values, list):
        return []
    return [_struct(value) for value in values]


class _Struct:
    """Reads one struct of Thrift's compact protocol from the beginning of some bytes."""

    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0

    def fields(self, depth: int = 0) -> dict[int, Any]:
        """The numbers, lists and structs in the struct, by their numbers; the rest is passed."""
        if depth > DEEPEST:
            raise ValueError("the header of a page is nested too deeply")
        values: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._number()
            values[number] = self._value(kind, depth)
        return values

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (_TRUE, _FALSE):
            return None
        if kind == _BYTE:
            return self._byte()
        if kind < _DOUBLE:
            return self._number()
        if kind == _DOUBLE:
            self._skip(8)
        elif kind == _BINARY:
            self._skip(self._plain_number())
        elif kind in (_LIST, _SET):
            return self._list(depth)
        elif kind == _STRUCT:
            return self.fields(depth + 1)
        else:
            raise ValueError("the header of a page has a field of an unknown type")
        return None

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = self._plain_number() if head >> 4 == 15 else head >> 4
        if count > len(self.content):
            raise ValueError("the header of a page is damaged")
        kind = head & 15
        if kind in (_TRUE, _FALSE):  # in a list a truth value takes a byte
            kind = _BYTE
        return [self._value(kind, depth + 1) for _ in range(count)]

    def _skip(self, count: int) -> None:
        self.place += count
        if self.place > len(self.content):
            raise ValueError("the header of a page is truncated or too long")

    def _byte(self) -> int:
        self._skip(1)
        return self.content[self.place - 1]

    def _plain_number(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
            if shift > 63:
                raise ValueError("the header of a page has a number that is too long")

    def _number(self) -> int:
        value = self._plain_number()  # zigzag: 0, -1, 1, -2 …
        return value >> 1 ^ -(value & 1)
