"""Which versions wait for their verdict, in the order of publication."""

import pytest

from trainworthy.lifecycle.promotion.judged import newest, waiting

PUBLISHED = ("v8", "v9", "v10", "v11")


@pytest.mark.parametrize(
    ("judged", "found", "left"),
    [
        ((), None, ("v9", "v10", "v11")),
        (("v9",), "v9", ("v10", "v11")),
        (("v9", "v11"), "v11", ()),
        # Judged out of order: what lies before the newest judged one is past.
        (("v10", "v8"), "v10", ("v11",)),
        # A version that is no longer listed says nothing.
        (("v7",), None, ("v9", "v10", "v11")),
    ],
)
def test_waiting_versions_are_those_published_after_the_newest_judged(judged, found, left):
    assert newest(PUBLISHED, judged) == found
    assert waiting(PUBLISHED, judged, declared="v9") == left
