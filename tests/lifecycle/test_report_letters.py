"""Letters that the usual font lacks are drawn by another font of the machine, and without one nothing is warned of."""

import warnings

import pytest
from matplotlib.font_manager import findfont
from matplotlib.ft2font import FT2Font

from trainworthy.lifecycle.report.letters import drawable
from trainworthy.lifecycle.report.pictures import _figure, _nothing, _png

# Comes with matplotlib: a letter that STIX has and DejaVu Sans lacks. The other one no font of it has.
PHONETIC, HAN = "\u1d81", "\u4e00"


def png_of(sentence: str) -> bytes:
    figure = _figure(3, 1)
    return _nothing(figure, figure.subplots(), sentence)


def test_the_usual_font_lacks_the_letter_that_another_one_has():
    letters = FT2Font(findfont("DejaVu Sans")).get_charmap()
    assert ord(PHONETIC) not in letters
    assert ord("a") in letters


def test_a_letter_of_another_font_is_drawn_by_it():
    figure = _figure(3, 1)
    text = figure.text(0.5, 0.5, f"of {PHONETIC}")
    usual = figure.text(0.5, 0.2, "of a")
    with drawable(figure):
        families = text.get_fontfamily()
    assert len(families) == 2
    assert ord(PHONETIC) in FT2Font(findfont(families[1])).get_charmap()
    assert len(usual.get_fontfamily()) == 1
    assert png_of(f"of {PHONETIC}") != png_of("of a")


@pytest.mark.parametrize("letter", [PHONETIC, HAN, "a"])
def test_no_picture_warns_of_letters(letter):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert png_of(f"of {letter}").startswith(b"\x89PNG")


def test_the_warning_is_matplotlib_s_own():
    figure = _figure(3, 1)
    figure.text(0.5, 0.5, HAN)
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with pytest.warns(UserWarning, match="Glyph .* missing from"):
        FigureCanvasAgg(figure).draw()
    assert _png(figure)
