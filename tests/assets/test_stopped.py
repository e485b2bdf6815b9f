"""What Dagster's event log keeps of a stop: the words, and no stack."""

import dagster as dg

from trainworthy.assets.stopped import StoppedError

MESSAGE = "toy stopped at smoke\n  - finite: fail: the loss is nan\n    fix: lower the learning rate"


def failure_of(error: Exception) -> dg.DagsterEvent:
    @dg.op(out=dg.Out(dg.Nothing))
    def breaks():
        try:
            raise KeyError("what was underneath")
        except KeyError:
            raise error from None

    @dg.job
    def job():
        breaks()

    result = job.execute_in_process(raise_on_error=False)
    (failed,) = [event for event in result.all_events if event.event_type_value == "STEP_FAILURE"]
    return failed


def test_stop_is_told_by_its_words_alone():
    data = failure_of(StoppedError(MESSAGE)).step_failure_data
    assert data.error is not None
    assert data.user_failure_data is not None
    assert (data.error.message, list(data.error.stack), data.error.cause) == (MESSAGE, [], None)
    assert data.error.to_string() == MESSAGE
    assert data.user_failure_data.description == MESSAGE
    assert StoppedError(MESSAGE).allow_retries is False


def test_bug_keeps_its_stack():
    error = failure_of(ValueError("a bug")).step_failure_data.error
    assert error is not None
    assert error.cause is not None
    assert list(error.cause.stack)
