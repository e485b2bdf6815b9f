"""Letters that the usual font of pictures lacks, such as Chinese ones, by another font of this machine."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextmanager
def drawable(figure: Figure) -> Iterator[None]:
    """Give texts of the figure a font that has their letters, and draw within; without one they are boxes, which
    matplotlib would warn of once a letter."""
    from matplotlib.font_manager import findfont
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        usual = _letters_of(findfont(text.get_fontproperties()))
        lacking = frozenset(map(ord, "".join(text.get_text().split()))) - usual
        if lacking and (other := _family_with(lacking)):
            text.set_fontfamily([*text.get_fontfamily(), other])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from", UserWarning)
        yield


@lru_cache(maxsize=1024)
def _letters_of(path: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(FT2Font(path).get_charmap())
    except (RuntimeError, OSError):
        # A font that FreeType cannot read, or that is gone since matplotlib listed it.
        return frozenset()


@lru_cache(maxsize=256)
def _family_with(lacking: frozenset[int]) -> str | None:
    """The family of the first font that has all of these letters."""
    from matplotlib.font_manager import fontManager

    # 10 ms a font, once: only where a letter is lacking. Unicode's own font "Last Resort" has boxes for all.
    fonts = (font for font in fontManager.ttflist if not font.name.startswith("Last Resort"))
    return next((font.name for font in fonts if lacking <= _letters_of(font.fname)), None)
