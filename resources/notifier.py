"""Where alerts go: always to the run's log, and to a webhook where the environment names one.

TRAINWORTHY_WEBHOOK    an https address, or http on this machine; alerts are posted to it as JSON

The address may hold a key, so it is never logged, recorded or shown.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

from trainworthy.lifecycle.alert import Alert
from trainworthy.lifecycle.errors import NotifierError

WEBHOOK = "TRAINWORTHY_WEBHOOK"
TIMEOUT_SECONDS = 10.0


class Notifier(Protocol):
    """Tells people. Raises NotifierError if an alert did not get there."""

    def send(self, alert: Alert) -> None: ...


@dataclass(frozen=True)
class LogNotifier:
    """Alerts as lines of a log."""

    log: Callable[[str], None]

    def send(self, alert: Alert) -> None:
        self.log(f"alert: {alert.text}")


@dataclass(frozen=True)
class WebhookNotifier:
    """Alerts posted as JSON: the alert's fields, and `text`, the same on one line."""

    url: str = field(repr=False)
    timeout_seconds: float = TIMEOUT_SECONDS

    def send(self, alert: Alert) -> None:
        """One attempt. A redirect is not followed: the alert goes where the environment says, or nowhere."""
        from http.client import HTTPException

        body = json.dumps({"text": alert.text, **alert.model_dump()}).encode()
        try:
            status = self._posted(body)
        except (OSError, HTTPException, ValueError) as error:
            # A message may quote the address.
            reason = getattr(error, "reason", error)
            raise _undelivered(type(reason if isinstance(reason, Exception) else error).__name__) from None
        if not 200 <= status < 300:
            raise _undelivered(f"it answered {status}")

    def _posted(self, body: bytes) -> int:
        """The status of the answer. What lies on this machine is reached without a proxy."""
        # Imported here: with ssl and email it costs 30 ms, and definitions load without it.
        from urllib.error import HTTPError
        from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

        class NoRedirect(HTTPRedirectHandler):
            def redirect_request(self, *_: object, **__: object) -> None:
                return None

        direct = [ProxyHandler({})] if _on_this_machine(urlsplit(self.url).hostname or "") else []
        headers = {"Content-Type": "application/json", "User-Agent": "trainworthy"}
        request = Request(self.url, body, headers, method="POST")
        try:
            with build_opener(NoRedirect(), *direct).open(request, timeout=self.timeout_seconds) as answer:
                return answer.status
        except HTTPError as error:
            error.close()
            return error.code


def webhook() -> WebhookNotifier | None:
    """The webhook of the environment, None without one. Raises NotifierError for an address that may not be used."""
    url = os.environ.get(WEBHOOK, "").strip()
    if not url:
        return None
    fix = f"write https://… to {WEBHOOK}, or http://127.0.0.1:PORT/… for a receiver on this machine"
    try:
        address = urlsplit(url)
        host, _ = address.hostname, address.port
    except ValueError:
        raise NotifierError(f"{WEBHOOK} holds no address", fix=fix) from None
    if not host or address.scheme not in ("https", "http"):
        raise NotifierError(f"{WEBHOOK} holds no https address", fix=fix)
    if address.scheme == "http" and not _on_this_machine(host):
        raise NotifierError(f"{WEBHOOK} would send alerts unencrypted over the network", fix=fix)
    if address.username or address.password:
        raise NotifierError(f"{WEBHOOK} holds a user or password, which is not sent", fix="put a key into the path")
    return WebhookNotifier(url)


def _on_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _undelivered(why: str) -> NotifierError:
    fix = f"ask who runs the receiver, and whether {WEBHOOK} is right: trainworthy doctor"
    return NotifierError(
        f"the webhook did not take the alert: {why}; the next run of the use case tries again", fix=fix
    )
