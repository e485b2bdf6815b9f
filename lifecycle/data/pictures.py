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
