"""The sensor under the UI that `make ui` starts: a version with a fault is validated and told, without a person."""

import socket
import sys

import pytest
from toy_project import product, until
from webhook_receiver import receiving

pytestmark = pytest.mark.slow


def test_sensor_that_is_switched_on_validates_the_newest_version_and_the_webhook_is_told(fresh):
    fresh.edit("contract.yaml", "minimum: -10", "minimum: 0")
    start = ("-m", "dagster", "sensor", "start", "toy_validate_new_version", "-w", "workspace.yaml")
    switched = fresh.call(*start, DAGSTER_HOME=str(product()))
    assert switched.code == 0, switched.out
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    dev = ("-m", "dagster", "dev", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", port)
    with receiving() as receiver:
        server = fresh.start([sys.executable, *dev], TRAINWORTHY_WEBHOOK=receiver.url)
        try:
            (alert,) = until(lambda: receiver.taken, 240, "until the sensor's run told what it found")
        finally:
            server.terminate()
            server.communicate(timeout=60)
    assert (alert["what"], alert["dataset"]) == ("contract broken", "toy_rows@v2")
    with fresh.instance() as instance:
        run = instance.get_run_by_id(alert["run_id"])
    assert run.job_name == "validate_toy"
    assert run.tags["dagster/sensor_name"] == "toy_validate_new_version"
