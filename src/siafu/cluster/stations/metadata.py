"""Metadata services of clouds: each says, to the machine itself, that it will be taken away.

All three answer at one address that no network routes. A cloud's own variables count: where its service is, and whether it is to
be asked at all.
"""

import json
import os
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

_HERE = "http://169.254.169.254"
_FIRST_ANSWER_SECONDS = 1.0
_ANSWER_SECONDS = 2.0
_TOKEN_SECONDS = 21600
_HANGING_SECONDS = 5  # that Google's service may hold a question until there is news
_LARGEST_ANSWER = 1 << 16


@dataclass(frozen=True, slots=True)
class SpotNotice:
    """A cloud takes the machine back.

    action: "terminate", "stop", "hibernate" or "preempt"
    time:   when, as the cloud writes it; "": it does not say
    """

    cloud: str
    action: str
    time: str

    def __str__(self) -> str:
        return f"{self.cloud} will {self.action} its machine" + (f" at {self.time}" if self.time else " soon")


class Metadata(Protocol):
    """One cloud's service. A call raises OSError, HTTPException or ValueError where there is no answer that makes sense."""

    def find(self) -> None:
        """Find out whether this cloud's service answers here; raises if it does not."""

    def notice(self) -> SpotNotice | None:
        """The notice, if there is one."""


def services() -> list[Metadata]:
    """The services that may be asked, in the order in which they are looked for."""
    found: list[Metadata] = []
    if not _is_true("AWS_EC2_METADATA_DISABLED"):
        found.append(AwsMetadata(os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _HERE))
    if not _is_true("NO_GCE_CHECK"):
        host = os.environ.get("GCE_METADATA_HOST")
        found.append(GoogleMetadata(f"http://{host}" if host else _HERE))
    if not _is_true("AZURE_METADATA_DISABLED"):
        found.append(AzureMetadata(os.environ.get("AZURE_METADATA_ENDPOINT") or _HERE))
    return found


def _is_true(variable: str) -> bool:
    return os.environ.get(variable, "").lower() == "true"


class _Service:
    """Questions over HTTP."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint.rstrip("/")
        # A proxy would be asked about itself.
        self._opener = build_opener(ProxyHandler({}))

    def _ask(
        self, method: str, path: str, headers: dict[str, str], seconds: float = _ANSWER_SECONDS
    ) -> tuple[bytes, Any]:
        """The answer's body and headers."""
        request = Request(self._endpoint + path, method=method, headers=headers)
        with self._opener.open(request, timeout=seconds) as answer:
            return answer.read(_LARGEST_ANSWER), answer.headers


class AwsMetadata(_Service):
    """AWS's (IMDSv2): two minutes ahead."""

    _token = ""

    def find(self) -> None:
        self._renew_token(_FIRST_ANSWER_SECONDS)

    def notice(self) -> SpotNotice | None:
        token = {"X-aws-ec2-metadata-token": self._token}
        try:
            data, _ = self._ask("GET", "/latest/meta-data/spot/instance-action", token)
        except HTTPError as error:
            if error.code == 401:
                self._renew_token()
            return None  # 404: there is none
        told = json.loads(data)
        if not isinstance(told, dict) or "action" not in told:
            raise ValueError("the metadata service's answer is no notice")
        return SpotNotice("AWS", str(told["action"]), str(told.get("time", "")))

    def _renew_token(self, seconds: float = _ANSWER_SECONDS) -> None:
        lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_SECONDS)}
        data, _ = self._ask("PUT", "/latest/api/token", lifetime, seconds)
        self._token = data.decode("ascii")


class GoogleMetadata(_Service):
    """Google's: 30 seconds ahead; a question waits at the service until there is news."""

    _flavor = {"Metadata-Flavor": "Google"}  # noqa: RUF012 (never changed)
    _path = "/computeMetadata/v1/instance/preempted"

    def find(self) -> None:
        _, headers = self._ask("GET", self._path, self._flavor, _FIRST_ANSWER_SECONDS)
        if headers.get("Metadata-Flavor") != "Google":
            raise ValueError("the metadata service is not Google's")

    def notice(self) -> SpotNotice | None:
        # At once, if it is so already; a change since would not be waited for.
        if self._is_preempted(""):
            return SpotNotice("Google", "preempt", "")
        waiting = f"?wait_for_change=true&timeout_sec={_HANGING_SECONDS}"
        if self._is_preempted(waiting, _HANGING_SECONDS + _ANSWER_SECONDS):
            return SpotNotice("Google", "preempt", "")
        return None

    def _is_preempted(self, question: str, seconds: float = _ANSWER_SECONDS) -> bool:
        data, _ = self._ask("GET", self._path + question, self._flavor, seconds)
        return data.strip().upper() == b"TRUE"


class AzureMetadata(_Service):
    """Azure's scheduled events: 30 seconds ahead. Those of a set's other machines are told of, too."""

    _asked = {"Metadata": "true"}  # noqa: RUF012 (never changed)
    _name = ""

    def find(self) -> None:
        path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
        data, _ = self._ask("GET", path, self._asked, _FIRST_ANSWER_SECONDS)
        self._name = data.decode("utf-8")

    def notice(self) -> SpotNotice | None:
        # The first question of a machine switches the service on, which may take two minutes: it is asked again.
        data, _ = self._ask("GET", "/metadata/scheduledevents?api-version=2020-07-01", self._asked)
        told = json.loads(data)
        if not isinstance(told, dict) or not isinstance(told.get("Events"), list):
            raise ValueError("the metadata service's answer is no list of events")
        for event in told["Events"]:
            if event.get("EventType") == "Preempt" and self._name in event.get("Resources", [self._name]):
                return SpotNotice("Azure", "preempt", str(event.get("NotBefore", "")))
        return None
