"""The bytes of a file: whether they are a picture, a mask, an array or a text, and within the limits."""

from __future__ import annotations

import io
from collections.abc import Callable

from trainworthy.lifecycle.files.kind import FileKind
from trainworthy.lifecycle.files.pictures import open_picture

# A larger picture is below the size from which Pillow warns of a bomb.
MOST_PIXELS = 64 * 2**20
# A mask holds a whole number a pixel: black and white, grey, or places in a palette.
MASK_MODES = ("1", "L", "P", "I", "I;16", "I;16L", "I;16B")


def wrong_content(
    data: bytes, kind: FileKind, size: tuple[int, ...] | None = None, classes: int | None = None
) -> tuple[str, tuple[int, ...]]:
    """What is wrong with a file's bytes, empty if nothing is, and height and width of a picture or mask."""
    if not data:
        return "the file is empty (0 bytes)", ()
    try:
        if kind in ("picture", "mask"):
            return _image(data, size, mask=kind == "mask", classes=classes)
        return _READERS[kind](data, size), ()
    except Exception as error:  # Decoders of damaged bytes raise whatever they like.
        return f"no {kind} can be read from it ({type(error).__name__}: {' '.join(str(error).split())[:200]})", ()


def _image(
    data: bytes, size: tuple[int, ...] | None, *, mask: bool, classes: int | None
) -> tuple[str, tuple[int, ...]]:
    import numpy as np

    with open_picture(io.BytesIO(data)) as image:
        width, height = image.size
        own_size = (height, width)
        if width * height > MOST_PIXELS:
            return f"it has {width * height:,} pixels, more than {MOST_PIXELS:,}", own_size
        if size is not None and own_size != size:
            return f"it is {height} × {width} pixels, and the contract pins {size[0]} × {size[1]}", own_size
        if mask and image.mode not in MASK_MODES:
            return f"a mask holds one whole number a pixel, and its mode is {image.mode}", own_size
        image.load()
        values = None if classes is None else np.asarray(image)
    if classes is None or values is None:
        return "", own_size
    # TIFF holds numbers below 0 too.
    wrong = [value for value in (int(values.max()), int(values.min())) if not 0 <= value < classes]
    mistake = f"a pixel of the mask is {wrong[0]}, and the {classes} classes are 0 to {classes - 1}" if wrong else ""
    return mistake, own_size


def _array(data: bytes, size: tuple[int, ...] | None) -> str:
    """Of a .npy file; no pickle is read, and nothing larger than the file is ever allocated."""
    from numpy.lib import format as npy

    file = io.BytesIO(data)
    version = npy.read_magic(file)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, kind = read_header(file)
    if kind.kind not in "biuf":
        return f"an array holds numbers, and its type is {kind}"
    expected = kind.itemsize
    for side in shape:
        expected *= side
    if expected != len(data) - file.tell():
        return f"its header tells of {expected:,} bytes, and it has {len(data) - file.tell():,}"
    if size is not None and shape != size:
        return f"its shape is {_sides(shape)}, and the contract pins {_sides(size)}"
    return "" if expected else "the array is empty"


def _sides(shape: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


def _text(data: bytes, size: tuple[int, ...] | None) -> str:
    return "" if data.decode("utf-8").strip() else "the text is empty (only white space)"


_READERS: dict[FileKind, Callable[[bytes, tuple[int, ...] | None], str]] = {
    "array": _array, "text": _text,
}  # fmt: skip
