"""SpotWatch: notices that AWS will take a spot machine back, about two minutes before.

Asks the machine's metadata service (IMDSv2) every few seconds. Elsewhere than on AWS the service does not answer, and
the watch ends at once. AWS's own variables count: `AWS_EC2_METADATA_SERVICE_ENDPOINT` is where the service is, and
`AWS_EC2_METADATA_DISABLED` says that there is none.
"""

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

EVERY_SECONDS = 5.0  # as AWS recommends
_HERE = "http://169.254.169.254"
_FIRST_ANSWER_SECONDS = 1.0
_ANSWER_SECONDS = 2.0
_TOKEN_SECONDS = 21600
_LARGEST_ANSWER = 4096
_UNREACHABLE = (OSError, HTTPException, ValueError)


@dataclass(frozen=True, slots=True)
class SpotNotice:
    """AWS takes the machine back.

    action: "terminate", "stop" or "hibernate"
    time:   when, as AWS writes it: UTC, ISO 8601
    """

    action: str
    time: str


class SpotWatch:
    """Calls `noticed` once, in a thread of its own, when there is a notice.

    every: seconds between requests
    """

    def __init__(self, noticed: Callable[[SpotNotice], None], *, every: float = EVERY_SECONDS) -> None:
        self._noticed, self._every = noticed, every
        self._metadata = _Metadata(os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _HERE)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="siafu-spot", daemon=True)

    def start(self) -> None:
        """Begin to watch, where there is a service. Returns at once."""
        if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true":
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def wait(self, seconds: float) -> bool:
        """Whether the watch is over within so many seconds: noticed, stopped, or never begun."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._metadata.renew_token(_FIRST_ANSWER_SECONDS)
        except _UNREACHABLE:
            return  # not on AWS
        while not self._stopping.is_set():
            if (notice := self._look()) is not None:
                self._noticed(notice)
                return
            self._stopping.wait(self._every)

    def _look(self) -> SpotNotice | None:
        """The notice, if there is one; a service that does not answer is asked again later."""
        try:
            return self._metadata.notice()
        except _UNREACHABLE:
            return None


class _Metadata:
    """The metadata service of a machine on AWS, over HTTP."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint.rstrip("/")
        self._token = ""
        # A proxy would be asked about itself.
        self._opener = build_opener(ProxyHandler({}))

    def renew_token(self, seconds: float = _ANSWER_SECONDS) -> None:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
        self._token = self._ask("PUT", "/latest/api/token", lifetime, seconds).decode("ascii")

    def notice(self) -> SpotNotice | None:
        """The notice, as long as there is one."""
        try:
            told = self._instance_action()
        except HTTPError as error:
            if error.code != 401:  # 404: there is none
                return None
            self.renew_token()
            return None
        return SpotNotice(str(told["action"]), str(told.get("time", "")))

    def _instance_action(self) -> dict[str, Any]:
        token = {"X-aws-ec2-metadata-token": self._token}
        data = self._ask("GET", "/latest/meta-data/spot/instance-action", token, _ANSWER_SECONDS)
        told = json.loads(data)
        if not isinstance(told, dict) or "action" not in told:
            raise ValueError("the metadata service's answer is no notice")
        return told

    def _ask(self, method: str, path: str, headers: dict[str, str], seconds: float) -> bytes:
        request = Request(self._endpoint + path, method=method, headers=headers)
        with self._opener.open(request, timeout=seconds) as answer:
            data: bytes = answer.read(_LARGEST_ANSWER)
        return data
