"""Guard: middleware before every route, which checks access and adds security headers."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from siafu.dashboard.access import Access
from siafu.dashboard.connections import LET_IN
from siafu.dashboard.pages import page

_READING = ("GET", "HEAD")

_HEADERS = {
    # Scripts and styles are our files, and nothing else on a page can become one.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


class Guard:
    """ASGI middleware that refuses requests that `access` does not allow."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        answer = self._refusal(scope) or self._app
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        if not self._access.knows_host(headers):
            told = "this dashboard does not answer to that name: start it with --allow-host NAME"
            return JSONResponse({"error": told}, 421)
        if path.startswith("/assets/"):
            return None
        if path == "/login":
            return None if self._access.is_from_our_page(headers) else _forbidden()
        if not self._access.is_signed_in(headers, _port(headers)):
            brings_token = path == "/" and scope["method"] == "GET" and b"token=" in scope["query_string"]
            return None if brings_token else _sign_in_first(path)
        # Tell the server that this connection is no stranger's.
        scope.get("extensions", {}).get(LET_IN, lambda: None)()
        if scope["method"] not in _READING and not self._access.may_change(headers):
            return _forbidden()
        return None


def _sign_in_first(path: str) -> Response:
    if path == "/" or path.startswith("/runs/"):
        return HTMLResponse(page("login", told=""), 401)
    return JSONResponse({"error": "sign in first"}, 401, {"www-authenticate": "Bearer"})


def _forbidden() -> Response:
    return JSONResponse({"error": "only this dashboard's own page may do that: load it again"}, 403)


def _port(headers: Headers) -> int:
    _, _, port = headers.get("host", "").rpartition(":")
    return int(port) if port.isdecimal() else 80
