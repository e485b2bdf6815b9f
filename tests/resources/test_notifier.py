"""The webhook: what may be one, and what a receiver that fails makes of it."""

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from trainworthy.lifecycle.alert import Alert
from trainworthy.lifecycle.errors import NotifierError
from trainworthy.resources.notifier import WEBHOOK, LogNotifier, WebhookNotifier, webhook

ALERT = Alert(
    subject="late data", key="5e",
    use_case="toy", dataset="rows@v2", step="dataset", check="freshness", what="late data", severity="error",
    evidence="9 d", fix="publish", run_id="1",
)  # fmt: skip


@pytest.fixture
def served():
    """A function that serves one answer and gives the address and the paths that were asked for."""
    servers = []

    def serve(answer, headers=()):
        asked = []

        class Answering(BaseHTTPRequestHandler):
            def do_POST(self):
                asked.append(self.path)
                self.rfile.read(int(self.headers["Content-Length"]))
                if answer is None:
                    self.connection.close()
                    return
                self.send_response(answer)
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Answering)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}", asked

    yield serve
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize(
    "url", ["https://example.org/hook", "http://127.0.0.1:8080/hook", "http://[::1]/hook", "http://localhost:1/hook"]
)
def test_webhook_with_https_or_on_this_machine_is_taken_and_never_shown(monkeypatch, url):
    monkeypatch.setenv(WEBHOOK, url)
    assert webhook().url == url
    assert "hook" not in repr(webhook()).removeprefix("WebhookNotifier")


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/s3cret",
        "http://127.0.0.1.example.org/s3cret",
        "file:///s3cret",
        "ftp://example.org/s3cret",
        "s3cret",
        "https:///s3cret",
        "https://me:s3cret@example.org/",
        "https://[s3cret/",
        "https://example.org:s3cret/",
    ],
)
def test_webhook_that_may_not_be_used_is_refused_without_its_address(monkeypatch, url):
    monkeypatch.setenv(WEBHOOK, url)
    with pytest.raises(NotifierError) as caught:
        webhook()
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("url", ["", "  "])
def test_webhook_that_is_not_set_is_none(monkeypatch, url):
    monkeypatch.setenv(WEBHOOK, url)
    assert webhook() is None


def test_webhook_that_takes_the_alert_passes(served):
    for answer in (200, 204):
        address, asked = served(answer)
        WebhookNotifier(f"{address}/hook").send(ALERT)
        assert asked == ["/hook"]


@pytest.mark.parametrize(("answer", "said"), [(500, "answered 500"), (404, "answered 404"), (None, "webhook")])
def test_webhook_that_does_not_take_the_alert_is_an_error_without_its_address(served, answer, said):
    address, _ = served(answer)
    with pytest.raises(NotifierError, match=said) as caught:
        WebhookNotifier(f"{address}/s3cret").send(ALERT)
    assert "s3cret" not in str(caught.value)
    assert "127.0.0.1" not in str(caught.value)


@pytest.mark.parametrize("answer", [301, 302, 303, 307, 308])
def test_webhook_redirect_is_not_followed(served, answer):
    elsewhere, reached = served(200)
    address, _ = served(answer, [("Location", f"{elsewhere}/other")])
    with pytest.raises(NotifierError, match=f"answered {answer}"):
        WebhookNotifier(f"{address}/hook").send(ALERT)
    assert reached == []


def test_webhook_without_an_answer_ends_at_its_timeout():
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as silent, pytest.raises(NotifierError):
        WebhookNotifier(f"http://127.0.0.1:{silent.server_port}/hook", timeout_seconds=0.2).send(ALERT)


def test_webhook_on_this_machine_is_reached_without_the_proxy(served, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    address, asked = served(200)
    WebhookNotifier(f"{address}/hook").send(ALERT)
    assert asked == ["/hook"]


def test_log_form_is_one_line():
    lines = []
    LogNotifier(lines.append).send(ALERT)
    assert lines == ["alert: late data: rows@v2 of toy (error): 9 d; fix: publish"]
