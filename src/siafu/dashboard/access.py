"""Access: who may see the dashboard, and which requests may stop a run.

Three dangers, and what stands against each:
- A web page elsewhere that has its own name point to this machine (DNS rebinding): the Host header must be an address,
  a name of this machine, or one that was allowed.
- A web page elsewhere that makes the browser send a request here: what changes something must come from our own page
  (Origin, Sec-Fetch-Site) and carry a secret that only our own page can read.
- Somebody on the network: without a token the dashboard listens to this machine only.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from siafu.base.addresses import is_address
from siafu.base.errors import BadInput

SESSION_HEADER = "x-siafu-session"
SHORTEST_TOKEN = 16


@dataclass(frozen=True, slots=True)
class Access:
    """Rules of access to this dashboard.

    token:   what one must know to see anything; None: who reaches it may see it
    names:   host names that it answers to, in lower case, besides addresses and localhost
    session: a secret of this process, which its pages carry and send with what changes something
    """

    token: str | None = None
    names: frozenset[str] = frozenset()
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            raise BadInput(
                f"the token has {len(self.token)} characters: give at least {SHORTEST_TOKEN}, or 'auto' to have one made"
            )

    def knows_host(self, headers: Headers) -> bool:
        """Whether the Host header names this dashboard, and not a name that somebody else points here."""
        given = headers.getlist("host")
        name = _host_name(given[0]) if len(given) == 1 else ""
        # No page elsewhere can have an address for its name: an address is never looked up.
        return name == "localhost" or name in self.names or is_address(name)

    def is_signed_in(self, headers: Headers, port: int) -> bool:
        """Whether the request knows the token: from its cookie, or as `Authorization: Bearer TOKEN`."""
        if self.token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.knows_token(given.strip()):
            return True
        cookie = cookie_parser(headers.get("cookie", "")).get(self.cookie_name(port), "")
        return _same(cookie, self.cookie_value)

    def knows_token(self, given: str) -> bool:
        return self.token is not None and _same(given, self.token)

    def is_from_our_page(self, headers: Headers) -> bool:
        """Whether no page but ours can have sent this. Browsers send both headers; other programs need not."""
        site = headers.get("sec-fetch-site")
        origin = headers.get("origin")
        host = headers.get("host", "")
        if site is not None and site != "same-origin":
            return False
        return origin is None or urlsplit(origin).netloc.lower() == host.lower()

    def may_change(self, headers: Headers) -> bool:
        """Whether the request comes from our page and carries its secret."""
        return self.is_from_our_page(headers) and _same(headers.get(SESSION_HEADER, ""), self.session)

    @property
    def cookie_value(self) -> str:
        """Cookie of a signed-in browser, in place of the token; worth nothing to another process."""
        return hmac.new(self.session.encode(), (self.token or "").encode(), hashlib.sha256).hexdigest()

    @staticmethod
    def cookie_name(port: int) -> str:
        # Cookies do not know ports: two dashboards on one machine must not sign each other out.
        return f"siafu-{port}"


def _host_name(header: str) -> str:
    """The name in a Host header, without its port; empty if the header is malformed."""
    try:
        return (urlsplit(f"//{header}").hostname or "") if "@" not in header and "/" not in header else ""
    except ValueError:
        return ""


def _same(given: str, wanted: str) -> bool:
    # Digests have one length, whatever was given: the time it takes tells nothing.
    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in (given, wanted)]
    return hmac.compare_digest(*digests)
