"""Statements of tile kernels that read and write memory as a whole: one instruction each."""

from __future__ import annotations

from collections.abc import Sequence

from pto_wsp.kernels.tile_expr import TYPES, dtype_of, is_tile, tile_type
from pto_wsp.kernels.tile_ir import Op, RefType, Statement, Value
from pto_wsp.kernels.tile_uses import only_right_operand
from pto_wsp.kernels.tile_windows import Region, element_type, paged_window, plain, region_of
from pto_wsp.kernels.tile_writer import Place, Writer
from pto_wsp.plan import AccessMode

_COLUMN_FOLDS = {
    Op.SUM_OF: "TCOLSUM",
    Op.MAX_OF: "TCOLMAX",
    Op.MIN_OF: "TCOLMIN",
    Op.MEAN_OF: "TCOLMEAN",
}


def emit_move(w: Writer, stmt: Statement) -> None:
    """Anything but elementwise work, rows, loads, stores and control."""
    match stmt.op:
        case Op.MATMUL | Op.MATMUL_ACC:
            _product(w, stmt)
        case Op.TOPK | Op.SORT:
            _sort(w, stmt)
        case Op.TRANSPOSE:
            _into(w, stmt, "TTRANS", _place(w, stmt.operands[0]))
        case Op.RESHAPE:
            _into(w, stmt, "TRESHAPE", _place(w, stmt.operands[0]))
        case Op.PAD:
            source, value = stmt.operands
            _into(w, stmt, "TPAD", _place(w, source), w.scalar(value))
        case Op.SLICE:
            _slice(w, stmt)
        case Op.CONCAT:
            _concat(w, stmt)
        case Op.GATHER:
            _gather(w, stmt)
        case Op.SCATTER:
            _scatter(w, stmt)
        case Op.ARGMAX_OF:
            name = "TROWARGMAX" if stmt.attribute("axis") == 1 else "TCOLARGMAX"
            _into(w, stmt, name, _place(w, stmt.operands[0]))
        case Op.ITEM:
            _item(w, stmt)
        case _:
            _into(w, stmt, _COLUMN_FOLDS[stmt.op], _place(w, stmt.operands[0]))


def _place(w: Writer, value: Value) -> str:
    return w.place(value).text


def _into(w: Writer, stmt: Statement, name: str, *arguments: str) -> None:
    """An instruction whose destination is a new tile."""
    place = w.new_tile(stmt.results[0])
    w.line(f"{name}({', '.join([place.text, *arguments])});", stmt)


def _operand(w: Writer, value: Value) -> str:
    """An operand of a product; a transposed one is read where it lies."""
    if value.number in w.uses.views:
        made = w.uses.definitions[value.number]
        source = _operand(w, made.operands[0])
        return f"{source}.transposed()" if made.op is Op.TRANSPOSE else source
    return _place(w, value)


def emit_products(w: Writer, group: Sequence[Statement]) -> None:
    """Products whose second operands lie on the same pages."""
    first = group[0]
    read = _read_by(w, group)
    factors = [_factors(w, stmt, read) for stmt in group]
    spare = _product_spare(w, first)
    later = w.read_next.get(id(first), "NotKnown{}")
    if len(group) == 1:
        arguments = [*factors[0], spare, later]
    else:
        arguments = [spare, later, *(f"by({', '.join(each)})" for each in factors)]
    name = _product_name(first) + ("_EACH" if len(group) > 1 else "")
    w.line(f"{name}({', '.join(arguments)});", first)


def _product(w: Writer, stmt: Statement) -> None:
    factors = _factors(w, stmt, _read_by(w, [stmt]))
    spare = _product_spare(w, stmt)
    w.line(f"{_product_name(stmt)}({', '.join([*factors, spare])});", stmt)


def _read_by(w: Writer, products: Sequence[Statement]) -> set[int]:
    """The values in memory that they multiply."""
    operands = [operand for stmt in products for operand in stmt.operands[-2:]]
    return {w.uses.views_of(operand)[-1].number for operand in operands}


def _product_name(stmt: Statement) -> str:
    return "TMATMUL_ACC" if stmt.op is Op.MATMUL_ACC else "TMATMUL"


def _product_spare(w: Writer, stmt: Statement) -> str:
    a, b = stmt.operands[-2:]
    (m, k), n = tile_type(a).shape, tile_type(b).cols
    size = dtype_of(stmt.results[0]).size
    return w.scratch.spare(f"matmul_scratch_bytes({m}, {n}, {k}, {size})")


def _factors(w: Writer, stmt: Statement, read: set[int]) -> list[str]:
    """The place of a product's result, which holds what it adds to, and its operands. `read` are
    the values that are read until the last element is written, by this product or beside it."""
    a, b = stmt.operands[-2:]
    result = stmt.results[0]
    left, right = _operand(w, a), _operand(w, b)
    if stmt.op is not Op.MATMUL_ACC:
        return [w.new_tile(result).text, left, right]
    acc = stmt.operands[0]
    slot = w.dying_slot(acc, w.uses.position[id(stmt)])
    if acc.number in read:
        slot = None
    before = _place(w, acc)
    place = w.new_tile(result, slot)
    if slot is None:
        w.line(f"TLOAD({place.text}, {before});")
    return [place.text, left, right]


def _sort(w: Writer, stmt: Statement) -> None:
    source = stmt.operands[0]
    kind = tile_type(source)
    from_place = _place(w, source)
    if stmt.op is Op.TOPK and tile_type(stmt.results[0]).partial[1]:
        (name,) = w.bounds.dims(stmt.results[0])[1]
        w.line(f"const i64 {name} = least({stmt.attribute('k')}, {w.cols(source)});")
    elif stmt.op is Op.TOPK and kind.partial[1]:
        w.line(f'need({w.cols(source)} >= 1, "topk: a row without elements ({w.where(stmt)})");')
    values, indices = (w.new_tile(result) for result in stmt.results)
    spare = w.scratch.spare(f"sort_scratch_bytes({kind.cols}, {kind.dtype.size})")
    if stmt.op is Op.TOPK:
        name, how = "TTOPK", str(stmt.attribute("k"))
    else:
        name, how = "TSORT", "true" if stmt.attribute("descending") else "false"
    w.line(f"{name}({values.text}, {indices.text}, {from_place}, {how}, {spare});", stmt)


def _slice(w: Writer, stmt: Statement) -> None:
    source, *first = stmt.operands
    result = stmt.results[0]
    kind, part = tile_type(source), tile_type(result)
    offsets = [w.scalar(value) for value in first]
    checks = [
        f"{offset} >= 0 && {offset} <= {kind.shape[dim] - part.shape[dim]}"
        for dim, offset in enumerate(offsets)
        if not _is_inside(offset, part.shape[dim], kind.shape[dim])
    ]
    for dim in (0, 1):
        if kind.partial[dim]:
            room = f"{_extent(w, source, dim)} - {offsets[dim]}"
            if part.partial[dim]:
                (name,) = w.bounds.dims(result)[dim]
                w.line(f"const i64 {name} = bound<false, {part.shape[dim]}>({room});")
            elif part.shape[dim] == 1:
                checks.append(f"{offsets[dim]} < {_extent(w, source, dim)}")
    if checks:
        w.line(f'need({" && ".join(checks)}, "slice: outside of the tile ({w.where(stmt)})");')
    _into(w, stmt, "TSLICE", _place(w, source), *map(plain, offsets))


def _extent(w: Writer, value: Value, dim: int) -> str:
    return w.cols(value) if dim else w.rows(value)


def _is_inside(offset: str, size: int, extent: int) -> bool:
    if not offset.startswith("i64{"):
        return False
    return 0 <= int(offset[4:-1]) <= extent - size


def _concat(w: Writer, stmt: Statement) -> None:
    place = w.new_tile(stmt.results[0])
    at = 0
    for operand in stmt.operands:
        first = f"0, {at}" if stmt.attribute("axis") == 1 else f"{at}, 0"
        w.line(f"TINSERT({place.text}, {_place(w, operand)}, {first});", stmt)
        at += tile_type(operand).shape[1 if stmt.attribute("axis") == 1 else 0]


def _whole_param(w: Writer, param: Value) -> str:
    """All of a rank-2 parameter, as a window."""
    name, ref = w.names.of(param), _ref(param)
    const = "const " if ref.mode is AccessMode.IN else ""
    return (
        f"Window<{const}{TYPES[ref.dtype]}>{{{name}.data(), {name}.stride(0), {name}.stride(1), "
        f"{name}.shape(0), {name}.shape(1)}}"
    )


def _token_rows(w: Writer, param: Value) -> str:
    """The distance of columns in a paged parameter of rank 2, and where its rows begin."""
    name = w.names.of(param)
    return f"{name}.stride(1), [&](i64 row) {{ return &{name}(row, 0); }}"


def _ref(param: Value) -> RefType:
    assert isinstance(param.type, RefType)
    return param.type


def _gather(w: Writer, stmt: Statement) -> None:
    source, numbers = stmt.operands
    result = stmt.results[0]
    if is_tile(source):
        _into(w, stmt, "TGATHER", _place(w, source), _place(w, numbers))
        return
    name = w.names.of(source)
    if tile_type(result).cols == 1:
        w.line(f'need({name}.shape(1) >= 1, "gather: rows of nothing ({w.where(stmt)})");')
    if _ref(source).paged:
        rows = f"{name}.shape(0), {_token_rows(w, source)}"
        _into(w, stmt, "TGATHER_ROWS", _place(w, numbers), rows)
    else:
        _into(w, stmt, "TGATHER", _whole_param(w, source), _place(w, numbers))


def _scatter(w: Writer, stmt: Statement) -> None:
    param, numbers, tile = stmt.operands
    by, rows = _place(w, numbers), _place(w, tile)
    if _ref(param).paged:
        name = w.names.of(param)
        to = f"{name}.shape(0), {name}.shape(1), {_token_rows(w, param)}"
        w.line(f"TSCATTER_ROWS({by}, {rows}, {to});", stmt)
    else:
        w.line(f"TSCATTER({_whole_param(w, param)}, {by}, {rows});", stmt)


def _item(w: Writer, stmt: Statement) -> None:
    tile, row, col = stmt.operands
    at = [w.scalar(row), w.scalar(col)]
    checks = [
        f"{offset} >= 0 && {offset} < {_extent(w, tile, dim)}"
        for dim, offset in enumerate(at)
        if w.bounds.dims(tile)[dim] or not _is_inside(offset, 1, tile_type(tile).shape[dim])
    ]
    if checks:
        w.line(f'need({" && ".join(checks)}, "item: outside of the tile ({w.where(stmt)})");')
    name = w.names.of(stmt.results[0])
    w.line(f"const auto {name} = {_place(w, tile)}.get({at[0]}, {at[1]});", stmt)


def emit_paged_load(w: Writer, stmt: Statement, region: Region, copied: bool) -> None:
    """Products go from page to page; for everybody else the rows are copied."""
    value = stmt.results[0]
    if region.row_dim == 0 and not copied and only_right_operand(w.uses, value):
        window = w.names.fresh(f"{w.names.of(value)}_tile")
        w.line(f"const auto {window} = {paged_window(w, region, _rows_of(w, stmt))};", stmt)
        w.places[value.number] = Place(window)
        return
    place = w.new_tile(value)
    if region.col_dim == 0:  # one row, whose columns are tokens
        head = f"for (i64 column = 0; column < {place.text}.cols; ++column) "
        w.line(f"{head}*{place.text}.at(0, column) = {_paged_element(w, region)};", stmt)
        return
    if region.row_dim > 0:  # of one token
        name = w.names.of(region.param)
        indices = ", ".join(plain(w.scalar(offset)) for offset in region.offsets)
        strides = f"{name}.stride({region.row_dim}), {name}.stride({region.col_dim})"
        kind = f"Window<{element_type(region)}>"
        window = f"{kind}{{&{name}({indices}), {strides}, {w.rows(value)}, {w.cols(value)}}}"
    else:
        window = paged_window(w, region, _rows_of(w, stmt))
    w.line(f"TLOAD({place.text}, {window});", stmt)


def _rows_of(w: Writer, stmt: Statement) -> tuple[list[str], str, str]:
    region, value = region_of(stmt), stmt.results[0]
    return [w.scalar(offset) for offset in region.offsets], w.rows(value), w.cols(value)


def emit_paged_store(w: Writer, stmt: Statement, region: Region, bounds: tuple[str, str]) -> None:
    value = stmt.operands[1]
    if is_tile(value) and region.col_dim != 0:
        stride, row = _paged_row(w, region)
        w.line(
            f"TSTORE_ROWS({bounds[0]}, {bounds[1]}, {stride}, {_place(w, value)}, "
            f"[&](i64 row) {{ return {row}; }});",
            stmt,
        )
        return
    element = f"static_cast<{TYPES[region.ref.dtype]}>({w.scalar(value)})"
    if is_tile(value):
        element = f"*{_place(w, value)}.at(row, column)"
    w.line(f"for (i64 row = 0; row < {bounds[0]}; ++row) {{", stmt)
    head = f"  for (i64 column = 0; column < {bounds[1]}; ++column) "
    w.line(f"{head}{_paged_element(w, region)} = {element};")
    w.line("}")


def _paged_element(w: Writer, region: Region) -> str:
    """The element in `row` and `column` of a region."""
    counters = {region.row_dim: " + row", region.col_dim: " + column"}
    offsets = enumerate(plain(w.scalar(offset)) for offset in region.offsets)
    indices = [text + counters.get(dim, "") for dim, text in offsets]
    return f"{w.names.of(region.param)}({', '.join(indices)})"


def _paged_row(w: Writer, region: Region) -> tuple[str, str]:
    """The distance of columns, and the address of the first element of `row`."""
    name = w.names.of(region.param)
    indices: list[str] = []
    for dim, offset in enumerate(region.offsets):
        text = plain(w.scalar(offset))
        indices.append(f"{text} + row" if dim == region.row_dim else text)
    stride = f"{name}.stride({region.col_dim})" if region.col_dim > 0 else "1"
    return stride, f"&{name}({', '.join(indices)})"
