"""Pictures as Pillow opens them: of the formats that it decodes itself, since others start programs or fetch files."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "TIFF", "BMP", "GIF", "WEBP", "PPM")


def open_picture(file: Path | IO[bytes]) -> Image:
    """A picture, its points not yet decoded. Raises what Pillow raises for other bytes; use it as a context."""
    from PIL import Image

    return Image.open(file, formats=FORMATS)


def in_eight_bits(image: Image, mode: str) -> Image:
    """A picture in a mode of eight bits a point, the upper ones of sixteen: Pillow would cut these off at 255."""
    if not image.mode.startswith("I"):
        return image.convert(mode)
    import numpy as np
    from PIL.Image import fromarray

    return fromarray((np.asarray(image).clip(0, 65535) // 256).astype(np.uint8)).convert(mode)
