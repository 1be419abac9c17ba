"""The definition of a word for every part of tasklm that counts, hashes or searches words."""

from __future__ import annotations

import functools
import unicodedata

# Scripts written without spaces: their characters count as words, because finding real words would
# need a dictionary.
_SPACELESS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),
    (0xA9E0, 0xA9FF),
    (0xAA60, 0xAA7F),  # Myanmar
    (0x1780, 0x17FF),
    (0x19E0, 0x19FF),  # Khmer
    # Han radicals, marks and numerals
    (0x2E80, 0x2FDF),
    (0x3005, 0x3007),
    (0x3021, 0x3029),
    (0x3038, 0x303B),
    (0x3040, 0x30FF),
    (0x31F0, 0x31FF),
    (0x1AFF0, 0x1B16F),  # Hiragana, Katakana
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x323AF),  # Han
)

# Whole texts go through bytes.translate, by far the quickest way in CPython: letters lowered, the
# rest blanked, UTF-8 kept.
_ASCII = bytes(
    ord(chr(b).lower()) if b >= 128 or chr(b).isalnum() else 32 for b in range(128)
) + bytes(range(128, 256))


def is_spaceless(character: str) -> bool:
    """Whether the character is of a script that is written without spaces."""
    code = ord(character)
    return code >= _SPACELESS[0][0] and any(low <= code <= high for low, high in _SPACELESS)


class _Spacing(dict[int, str]):
    """Code point → itself (part of a word), itself between spaces (a word of its own) or a space;
    filled when first met.
    """

    def __missing__(self, code: int) -> str:
        character = chr(code)
        if unicodedata.category(character)[0] not in "LNM":
            spaced = " "
        elif is_spaceless(character):
            spaced = f" {character} "
        else:
            spaced = character
        self[code] = spaced
        return spaced


_spacing = _Spacing()


@functools.lru_cache(maxsize=1 << 16)
def _pieces(token: str) -> list[str]:
    return token.translate(_spacing).split()


def folded(text: str) -> str:
    """The text with compatibility forms (NFKC) and case folded away."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def words(text: str) -> list[str]:
    """The folded runs of letters, digits and combining marks; a character of a spaceless script is
    one word.
    """
    if text.isascii():
        return text.encode("ascii").translate(_ASCII).decode("ascii").split()
    pieces: list[str] = []
    # lone surrogates, which JSON can contain, are not letters: "replace" turns them into question
    # marks
    for token in folded(text).encode("utf-8", "replace").translate(_ASCII).decode().split():
        if token.isascii():
            pieces.append(token)
        elif len(token) < 64:
            pieces += _pieces(token)
        else:
            pieces += token.translate(_spacing).split()  # not worth remembering
    return pieces


def count_words(text: str) -> int:
    """The number of words; a very long text is counted in slices, so that its words are never all
    in memory.
    """
    if len(text) <= 1 << 20:
        return len(words(text))
    return sum(
        len(words(text[start : start + (1 << 20)])) for start in range(0, len(text), 1 << 20)
    )
