"""The words of a text, with and without blanks between them, and texts that are made of their pieces."""

import pytest

from trainworthy.lifecycle.tasks.words import has_unspaced, joined, pieces_of, words_in


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It isn't 12 o_k, no!", ["It", "isn", "t", "12", "o_k", "no"]),
        ("الفيلم قصة هادئة", ["الفيلم", "قصة", "هادئة"]),
        ("早餐很棒，房间", ["早餐", "餐很", "很棒", "房间"]),
        ("我", ["我"]),
        ("iPhone手机 very好", ["iPhone", "手机", "very", "好"]),
        ("映画を見た", ["映画", "画を", "を見", "見た"]),
        ("\U00020000\U00020001", ["\U00020000\U00020001"]),
        ("영화를 보았다", ["영화를", "보았다"]),
        ("… -- !", []),
    ],
)
def test_words_stand_apart_or_are_pairs_of_letters(text, words):
    assert words_in(text) == words


def test_a_text_of_pieces_has_them_again_and_no_blank_that_its_script_lacks():
    for text in ("it was  good\nfun", "早餐很棒，房间好", "iPhone手机 good", "a", ""):
        assert pieces_of(joined(pieces_of(text))) == pieces_of(text)
    assert joined(["早餐", "很棒", "ok", "房"]) == "早餐很棒 ok 房"


def test_one_letter_is_no_script():
    assert has_unspaced("good 早餐")
    assert not has_unspaced("good 早 or 餐")
    assert not has_unspaced("영화를 보았다 الفيلم")
