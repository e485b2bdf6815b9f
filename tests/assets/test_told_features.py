from trainworthy.assets.suite import shown_features
from trainworthy.lifecycle.protocol.jobs import Rows


def test_told_features_leave_out_sensitive_ones_and_names_of_files():
    rows = Rows(
        features=("age", "wind", "picture"), label="late", group="day", keys=(), sensitive=("age",), files=("picture",)
    )
    assert shown_features(rows) == ("wind",)
    assert shown_features(rows.model_copy(update={"sensitive": (), "files": ()})) == ("age", "wind", "picture")
