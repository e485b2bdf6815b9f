"""Great Expectations in a process as Dagster's daemon starts it: the main module has neither file nor spec."""

import multiprocessing

from trainworthy.expectations.imported import import_great_expectations


def imported(told):
    import sys

    main = sys.modules["__main__"]
    for name in ("__file__", "__spec__"):
        main.__dict__.pop(name, None)
    main.__spec__ = None
    import_great_expectations()
    told.put(("great_expectations" in sys.modules, hasattr(main, "__file__")))


def test_import_in_a_process_without_a_main_file_does_not_end_it():
    spawn = multiprocessing.get_context("spawn")
    told = spawn.Queue()
    process = spawn.Process(target=imported, args=(told,))
    process.start()
    assert told.get(timeout=120) == (True, False)
    process.join(timeout=60)
    assert process.exitcode == 0
