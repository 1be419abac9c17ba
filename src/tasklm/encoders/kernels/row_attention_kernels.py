"""The GPU kernels of attention inside the pieces of short rows; row_attention.py calls them."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _places(head, part, token, HEADS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where the numbers (tokens, WIDTH) of a head stand in its row: queries, keys or values (part
    0, 1, 2 of 3), or 0 of 1.
    """
    return (token * (PARTS * HEADS) + part * HEADS + head)[:, None] * WIDTH + tl.arange(0, WIDTH)[
        None, :
    ]


@triton.jit
def _load(  # type: ignore[no-untyped-def]
    row_at, head, part, token, count, HEADS: tl.constexpr, WIDTH: tl.constexpr, PARTS: tl.constexpr
):
    """The numbers (tokens, WIDTH) of a head, 0 beyond the end of the row."""
    return tl.load(
        row_at + _places(head, part, token, HEADS, WIDTH, PARTS),
        mask=(token < count)[:, None],
        other=0.0,
    )


@triton.jit
def _store(  # type: ignore[no-untyped-def]
    row_at,
    states,
    head,
    part,
    token,
    count,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Writes the numbers (tokens, WIDTH) of a head."""
    places = _places(head, part, token, HEADS, WIDTH, PARTS)
    tl.store(row_at + places, states.to(row_at.dtype.element_ty), mask=(token < count)[:, None])


@triton.jit
def _sum(states, TOKENS: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum over the tokens as 16 equal rows (16, WIDTH): a product with ones costs less than
    sums across threads.
    """
    return tl.dot(tl.full((16, TOKENS), 1.0, states.dtype), states)


@triton.jit
def _store_sum(sums_at, sums, head, part, HEADS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Writes one of the equal rows of `_sum`, as part 0 (queries) or 1 (values) of a program's
    sums.
    """
    row, column = tl.arange(0, 16)[:, None], tl.arange(0, WIDTH)[None, :]
    tl.store(
        sums_at + (part * HEADS + head) * WIDTH + column + 0 * row, sums, mask=row + 0 * column == 0
    )


@triton.jit
def forward(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    starts_at,
    out_at,
    logs_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    KEYS: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
):
    first, count = tl.program_id(0).to(tl.int64) * LENGTH, LENGTH
    if (
        LENGTH == 0
        # a tile; not in a function of its own, of which PyTorch would think that it writes to
        # `starts_at`
    ):
        first = tl.load(starts_at + tl.program_id(0)).to(tl.int64)
        count = (tl.load(starts_at + tl.program_id(0) + 1) - first).to(tl.int32)
    qkv_at += first * (3 * HEADS * WIDTH)
    out_at += first * (HEADS * WIDTH)
    logs_at += first * HEADS
    pieces_at += first
    token = tl.arange(0, KEYS)
    other = tl.load(pieces_at + token, mask=token < count, other=-1).to(tl.int32)
    turns = GROUP * (KEYS // BLOCK) if LENGTH > 0 else tl.where(count > 0, GROUP, 0)
    for turn in range(
        turns
    ):  # one loop over heads and their blocks of queries: loads overlap in the innermost loop alone
        head = tl.program_id(1) * GROUP + turn // (KEYS // BLOCK)
        asking = turn % (KEYS // BLOCK) * BLOCK + tl.arange(0, BLOCK)
        query = _load(qkv_at, head, 0, asking, count, HEADS, WIDTH, 3)
        key = _load(qkv_at, head, 1, token, count, HEADS, WIDTH, 3)
        value = _load(qkv_at, head, 2, token, count, HEADS, WIDTH, 3)
        pieces = tl.load(pieces_at + asking, mask=asking < count, other=-1).to(tl.int32)
        scores = tl.where(pieces[:, None] == other[None, :], tl.dot(query, tl.trans(key)), -1e30)
        top = tl.max(scores, 1) * SCALE
        powers = tl.exp2(scores * SCALE - top[:, None])
        total = tl.sum(powers, 1)
        mixed = tl.dot(powers.to(value.dtype), value) * (1.0 / total)[:, None]
        _store(out_at, mixed, head, 0, asking, count, HEADS, WIDTH, 1)
        tl.store(logs_at + head * count + asking, top + tl.log2(total), mask=asking < count)


@triton.jit
def _gradients(query, key, value, of_mixed, logs, pieces, other, SCALE: tl.constexpr):  # type: ignore[no-untyped-def]
    """The probabilities (queries, keys), 0 outside a token's own piece, and the gradients of the
    scores.
    """
    weights = tl.exp2(tl.dot(query, tl.trans(key)) * SCALE - logs[:, None])
    weights = tl.where(pieces[:, None] == other[None, :], weights, 0.0)
    of_weights = tl.dot(of_mixed, tl.trans(value))
    of_scores = weights * (of_weights - tl.sum(weights * of_weights, 1)[:, None])
    return weights.to(value.dtype), of_scores.to(value.dtype)


@triton.jit
def backward(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    starts_at,
    logs_at,
    gradient_at,
    result_at,
    sums_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    KEYS: tl.constexpr,
    SUMS: tl.constexpr,
    GROUP: tl.constexpr,
):
    """For tiles, and rows of up to SHORT tokens."""
    first, count = tl.program_id(0).to(tl.int64) * LENGTH, LENGTH
    if LENGTH == 0:  # a tile
        first = tl.load(starts_at + tl.program_id(0)).to(tl.int64)
        count = (tl.load(starts_at + tl.program_id(0) + 1) - first).to(tl.int32)
    qkv_at += first * (3 * HEADS * WIDTH)
    result_at += first * (3 * HEADS * WIDTH)
    gradient_at += first * (HEADS * WIDTH)
    logs_at += first * HEADS
    sums_at += tl.program_id(0) * (2 * HEADS * WIDTH)
    token = tl.arange(0, KEYS)
    pieces = tl.load(pieces_at + first + token, mask=token < count, other=-1).to(tl.int32)
    turns = GROUP if LENGTH > 0 else tl.where(count > 0, GROUP, 0)
    for turn in range(turns):
        head = tl.program_id(1) * GROUP + turn
        query = _load(qkv_at, head, 0, token, count, HEADS, WIDTH, 3)
        key = _load(qkv_at, head, 1, token, count, HEADS, WIDTH, 3)
        value = _load(qkv_at, head, 2, token, count, HEADS, WIDTH, 3)
        of_mixed = _load(gradient_at, head, 0, token, count, HEADS, WIDTH, 1)
        logs = tl.load(logs_at + head * count + token, mask=token < count, other=0.0)
        weights, of_scores = _gradients(query, key, value, of_mixed, logs, pieces, pieces, SCALE)
        _store(
            result_at, tl.dot(tl.trans(weights), of_mixed), head, 2, token, count, HEADS, WIDTH, 3
        )
        _store(
            result_at,
            tl.dot(tl.trans(of_scores), query) * (SCALE * 0.6931471805599453),
            head,
            1,
            token,
            count,
            HEADS,
            WIDTH,
            3,
        )
        of_query = (tl.dot(of_scores, key) * (SCALE * 0.6931471805599453)).to(key.dtype)
        _store(result_at, of_query, head, 0, token, count, HEADS, WIDTH, 3)
        if SUMS:
            _store_sum(sums_at, _sum(of_query, KEYS), head, 0, HEADS, WIDTH)
            _store_sum(sums_at, _sum(of_mixed, KEYS), head, 1, HEADS, WIDTH)


@triton.jit
def backward_of_long(  # type: ignore[no-untyped-def]
    qkv_at,
    pieces_at,
    logs_at,
    gradient_at,
    result_at,
    sums_at,
    SCALE: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    LENGTH: tl.constexpr,
    KEYS: tl.constexpr,
    SUMS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """For longer rows: one head a program, queries in blocks."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    qkv_at += row * (LENGTH * 3 * HEADS * WIDTH)
    result_at += row * (LENGTH * 3 * HEADS * WIDTH)
    gradient_at += row * (LENGTH * HEADS * WIDTH)
    pieces_at += row * LENGTH
    logs_at += (row * HEADS + head) * LENGTH
    sums_at += row * (2 * HEADS * WIDTH)
    token = tl.arange(0, KEYS)
    key = _load(qkv_at, head, 1, token, LENGTH, HEADS, WIDTH, 3)
    value = _load(qkv_at, head, 2, token, LENGTH, HEADS, WIDTH, 3)
    other = tl.load(pieces_at + token, mask=token < LENGTH, other=-1).to(tl.int32)
    of_key, of_value = tl.zeros((KEYS, WIDTH), tl.float32), tl.zeros((KEYS, WIDTH), tl.float32)
    of_queries, of_values = tl.zeros((16, WIDTH), tl.float32), tl.zeros((16, WIDTH), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        asking = start + tl.arange(0, BLOCK)
        query = _load(qkv_at, head, 0, asking, LENGTH, HEADS, WIDTH, 3)
        of_mixed = _load(gradient_at, head, 0, asking, LENGTH, HEADS, WIDTH, 1)
        pieces = tl.load(pieces_at + asking, mask=asking < LENGTH, other=-1).to(tl.int32)
        logs = tl.load(logs_at + asking, mask=asking < LENGTH, other=0.0)
        weights, of_scores = _gradients(query, key, value, of_mixed, logs, pieces, other, SCALE)
        of_value += tl.dot(tl.trans(weights), of_mixed)
        of_key += tl.dot(tl.trans(of_scores), query)
        of_query = (tl.dot(of_scores, key) * (SCALE * 0.6931471805599453)).to(key.dtype)
        _store(result_at, of_query, head, 0, asking, LENGTH, HEADS, WIDTH, 3)
        if SUMS:
            of_queries += _sum(of_query, BLOCK)
            of_values += _sum(of_mixed, BLOCK)
    _store(
        result_at, of_key * (SCALE * 0.6931471805599453), head, 1, token, LENGTH, HEADS, WIDTH, 3
    )
    _store(result_at, of_value, head, 2, token, LENGTH, HEADS, WIDTH, 3)
    if SUMS:
        _store_sum(sums_at, of_queries, head, 0, HEADS, WIDTH)
        _store_sum(sums_at, of_values, head, 1, HEADS, WIDTH)
