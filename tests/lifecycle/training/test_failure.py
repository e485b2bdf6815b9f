"""What an end of the worker means and what follows: pure, so every class is tried."""

import errno
import signal

import pytest

from trainworthy.lifecycle.error_causes import PASSING_ERRNOS, in_an_update, ran_out_of_memory, storage_errno
from trainworthy.lifecycle.failure import (
    MOST_RESUMED,
    OUTAGE_SECONDS,
    End,
    MemorySeen,
    cause_of_end,
    error_of,
    pause_seconds,
    smaller_batch,
    why_not_again,
)
from trainworthy.lifecycle.protocol.training_figures import Attempt

GIB = 2**30


def attempt(cause="killed", from_step=0, to_step=0, seconds=10.0) -> Attempt:
    return Attempt(cause=cause, told="told", from_step=from_step, to_step=to_step, seconds=seconds)


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (End(exit_code=65, told={}), "bad_input"),
        (End(exit_code=70, told={}), "bug"),
        (End(exit_code=71, told={}), "out_of_memory"),
        (End(exit_code=73, told={}), "disk_full"),
        (End(exit_code=74, told={"passes": False}), "storage"),
        (End(exit_code=74, told={"passes": True}), "storage_outage"),
        (End(exit_code=74), "storage_outage"),
        (End(exit_code=75, told={}), "preempted"),
        (End(exit_code=1), "bug"),
        (End(exit_code=-signal.SIGTERM), "preempted"),
        (End(exit_code=-signal.SIGSEGV), "killed"),
        (End(exit_code=-signal.SIGBUS), "killed"),
        (End(exit_code=-signal.SIGKILL), "killed"),
        (End(exit_code=-signal.SIGKILL, memory=MemorySeen(kernel_kills=0)), "killed"),
        (End(exit_code=-signal.SIGKILL, memory=MemorySeen(kernel_kills=1)), "out_of_memory"),
        # Another process was killed for memory: a crash stays a crash.
        (End(exit_code=-signal.SIGSEGV, memory=MemorySeen(kernel_kills=1)), "killed"),
        # Where no counter can be read, the process's own size has to do; a counter is believed before it.
        (End(exit_code=-signal.SIGKILL, memory=MemorySeen(peak_bytes=95, limit_bytes=100)), "out_of_memory"),
        (End(exit_code=-signal.SIGKILL, memory=MemorySeen(peak_bytes=50, limit_bytes=100)), "killed"),
        (
            End(exit_code=-signal.SIGKILL, memory=MemorySeen(kernel_kills=0, peak_bytes=95, limit_bytes=100)),
            "killed",
        ),
    ],
)
def test_end_of_the_worker_has_its_cause(end, cause):
    assert cause_of_end(end) == cause


def test_storage_that_took_no_word_is_what_is_to_be_looked_at():
    error = error_of(End(exit_code=74))
    assert "exited with code 74 and left no word" in error.problem
    assert "bucket of its folder answers" in (error.fix or "")


def test_loading_process_that_the_kernel_killed_is_out_of_memory_only_if_it_was_counted():
    told = {"problem": "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ", "fix": "look"}
    assert cause_of_end(End(exit_code=70, told=told, memory=MemorySeen(kernel_kills=1))) == "out_of_memory"
    assert cause_of_end(End(exit_code=70, told=told, memory=MemorySeen(kernel_kills=0))) == "bug"
    assert cause_of_end(End(exit_code=70, told=told)) == "bug"


@pytest.mark.parametrize("cause", ["out_of_memory", "bad_input", "bug", "disk_full", "storage"])
def test_end_that_would_come_again_stops_at_once(cause):
    assert why_not_again([attempt(cause, 0, 500)]) == ""


def test_kills_go_on_three_times_even_with_progress():
    ends = [attempt("killed", step, step + 10) for step in range(0, 40, 10)]
    assert [why_not_again(ends[:n]) for n in range(1, MOST_RESUMED + 1)] == [None] * MOST_RESUMED
    assert why_not_again(ends) == "it had gone on 3 times"


def test_kills_at_one_place_are_told_as_such():
    ends = [attempt("killed", 40, 40)] * (MOST_RESUMED + 1)
    assert "no checkpoint after step 40" in (why_not_again(ends) or "")


def test_preemptions_are_free_while_steps_are_gained_and_counted_when_not():
    gaining = [attempt("preempted", step, step + 1) for step in range(50)]
    assert why_not_again(gaining) is None
    stuck = [attempt("preempted", 50, 50)] * MOST_RESUMED
    assert why_not_again(gaining + stuck) is None
    assert "no checkpoint after step 50" in (why_not_again([*gaining, *stuck, stuck[0]]) or "")


def test_storage_that_was_away_is_tried_once_more():
    assert why_not_again([attempt("storage_outage")]) is None
    assert why_not_again([attempt("storage_outage"), attempt("preempted", 0, 9), attempt("storage_outage", 9, 9)])


def test_money_bounds_also_preemptions_that_gain_steps():
    ends = [attempt("preempted", 0, 5, seconds=60.0), attempt("preempted", 5, 9, seconds=60.0)]
    assert why_not_again(ends, seconds_left=121.0) is None
    assert "budget" in (why_not_again(ends, seconds_left=120.0) or "")


def test_only_storage_that_was_away_is_given_time_and_that_time_is_of_the_budget():
    assert pause_seconds(attempt("storage_outage")) == OUTAGE_SECONDS
    assert {pause_seconds(attempt(cause)) for cause in ("preempted", "killed", "bug")} == {0.0}
    assert why_not_again([attempt("storage_outage", seconds=10.0)], seconds_left=11.0 + OUTAGE_SECONDS) is None
    assert "budget" in (why_not_again([attempt("storage_outage", seconds=10.0)], seconds_left=60.0) or "")


class NoNumberError(OSError):
    """As HTTP libraries have them: an OSError without a number of its own, raised for the socket's."""


def raised_for(error: Exception, cause: Exception) -> Exception:
    try:
        try:
            raise cause
        except type(cause):
            raise error  # noqa: B904 - libraries do so, and Python keeps what it was raised for.
    except type(error) as raised:
        return raised


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OSError(errno.EIO, "Input/output error"), True),
        (TimeoutError("timed out"), True),
        (ConnectionResetError("closed without an answer"), True),
        (raised_for(NoNumberError("cannot be read"), TimeoutError("timed out")), True),
        (raised_for(NoNumberError("cannot be read"), ConnectionRefusedError(errno.ECONNREFUSED, "refused")), True),
        (NoNumberError("not a Parquet file"), False),
        (FileNotFoundError(errno.ENOENT, "no such file"), False),
        # What the error says itself goes before what it was raised for.
        (raised_for(FileNotFoundError(errno.ENOENT, "no copy"), TimeoutError("timed out")), False),
    ],
)
def test_storage_that_may_be_back_is_known_also_without_a_number(error, passes):
    number = storage_errno(error)
    assert number is not None
    assert (number in PASSING_ERRNOS) is passes


def test_error_of_no_storage_has_no_number():
    assert storage_errno(raised_for(ValueError("no row"), TimeoutError("timed out"))) is None


@pytest.mark.parametrize(
    ("batch", "accumulate", "offered"),
    [
        (128, 1, (64, 2)),
        (64, 2, (32, 4)),
        (9, 1, (3, 3)),
        (6, 3, (3, 6)),
        (127, 1, (64, 2)),
        (2, 1, (1, 2)),
        (1, 4, None),
    ],
)
def test_offered_batch_is_at_most_about_half(batch, accumulate, offered):
    assert smaller_batch(batch, accumulate) == offered


def test_offered_batch_keeps_the_rows_of_an_update_wherever_they_divide():
    for batch in range(2, 300, 2):
        for accumulate in (1, 2, 3, 5):
            rows, parts = smaller_batch(batch, accumulate) or (0, 0)
            assert rows * parts == batch * accumulate
            assert rows <= batch / 2


def test_memory_error_has_numbers_in_its_fix():
    told = {"problem": "OutOfMemoryError: CUDA out of memory", "value": None, "fix": "", "in_update": True}
    error = error_of(End(exit_code=71, told=told, batch=(128, 1)))
    assert error.cause == "out_of_memory"
    assert error.fix.startswith("training.batch_size: 64 and training.accumulate: 2 keep the update's 128 rows")


def test_memory_error_beside_the_updates_offers_no_batch():
    told = {"problem": "MemoryError: ", "value": None, "fix": "", "in_update": False}
    fix = error_of(End(exit_code=71, told=told, batch=(128, 1))).fix
    assert "batch_size" not in fix
    assert "compute.sku" in fix
    assert "per_batch" in fix


def test_memory_error_offers_fewer_loaders_where_the_rows_are_on_the_disk_already():
    told = {"problem": "MemoryError: ", "value": None, "fix": "", "in_update": False}
    fix = error_of(End(exit_code=71, told=told, batch=(128, 1), rows_on_disk=True)).fix
    assert "per_batch" not in fix
    assert "compute.loaders" in fix


def test_memory_kill_tells_what_was_seen_and_offers_both():
    seen = MemorySeen(kernel_kills=1, counted_in="this control group", peak_bytes=3 * GIB, limit_bytes=4 * GIB)
    error = error_of(End(exit_code=-signal.SIGKILL, memory=seen, batch=(127, 1)))
    assert "was killed by SIGKILL" in error.problem
    assert "3.0 GiB of 4.0 GiB" in error.problem
    assert "if it was training" in error.fix
    assert "updates of 128 rows, not 127" in error.fix


def test_batch_of_one_row_is_offered_other_ways():
    told = {"problem": "MemoryError: ", "value": None, "fix": "", "in_update": True}
    assert "bf16" in error_of(End(exit_code=71, told=told, batch=(1, 8))).fix


class OutOfMemoryError(RuntimeError):
    """Named as torch's, which its CUDA builds raise."""


@pytest.mark.parametrize(
    ("error", "ran_out"),
    [
        (MemoryError(), True),
        (OutOfMemoryError("CUDA"), True),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), True),
        (RuntimeError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), True),
        (RuntimeError("shapes do not fit"), False),
        (ValueError("this text speaks of being out of memory"), False),
        (OSError(errno.EIO, "Input/output error"), False),
    ],
)
def test_error_says_whether_memory_ran_out(error, ran_out):
    assert ran_out_of_memory(error) is ran_out


def test_real_allocation_that_torch_refuses_is_seen_also_behind_another_error():
    import torch

    def wrapped():
        try:
            torch.empty(2**58, dtype=torch.float64)
        except RuntimeError as error:
            raise ValueError("features cannot be made") from error

    with pytest.raises(ValueError, match="features") as caught:
        wrapped()
    assert ran_out_of_memory(caught.value)
    assert not in_an_update(caught.value)
