from trainworthy.lifecycle.contract.rule import surplus


def test_surplus_is_the_rows_that_would_have_to_change_their_bin():
    assert surplus([50, 50, 0], [500, 500, 0]) == 0
    assert surplus([60, 40, 0], [500, 500, 0]) == 10
    assert surplus([0, 0, 100], [500, 500, 0]) == 100
    assert surplus([0, 0, 0], [500, 500, 0]) == 0
