"""The dashboard as an ASGI application: pages, events, the stop button, figures for Prometheus."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from siafu.base.errors import BadInput
from siafu.dashboard import prometheus
from siafu.dashboard.access import Access
from siafu.dashboard.connections import HEADER_SECONDS
from siafu.dashboard.event_stream import EventStream, PageEvent, Streams
from siafu.dashboard.guard import Guard
from siafu.dashboard.pages import assets, page
from siafu.dashboard.rows import EpochFeed
from siafu.dashboard.run_state import RunState, read_object
from siafu.dashboard.shelf import Shelf
from siafu.dashboard.trace import drawn_trace
from siafu.report.files.run_record import read_run
from siafu.report.files.stop_file import StopFile
from siafu.report.pages.run_report import run_report

_LOOK_SECONDS = 1.0
_FORM_BYTES = 4096
_WRONG_TOKEN_SECONDS = 1.0


class Dashboard:
    """State that the routes share: the runs, the rules of access, and the open streams."""

    def __init__(self, directory: Path, access: Access, *, look_seconds: float = _LOOK_SECONDS) -> None:
        self.shelf = Shelf(directory, look_seconds / 2)
        self.access = access
        self.streams = Streams()
        self._heavy = asyncio.Lock()  # reading a whole trace takes memory: one at a time
        self._look_seconds = look_seconds

    def app(self) -> Starlette:
        """The application, for any ASGI server."""
        routes = [
            Route("/", self._runs_page),
            Route("/runs/{id:str}", self._run_page),
            Route("/runs/{id:str}/report.html", self._report),
            Route("/assets/{name:str}", _asset),
            Route("/login", self._login, methods=["POST"]),
            Route("/api/runs", self._runs),
            Route("/api/runs/{id:str}", self._run),
            Route("/api/runs/{id:str}/trace", self._trace),
            Route("/api/runs/{id:str}/stop", self._stop, methods=["POST"]),
            Route("/events", self._run_events),
            Route("/events/{id:str}", self._epoch_events),
            Route("/metrics", self._prometheus),
        ]
        guard = Middleware(Guard, access=self.access)
        return Starlette(routes=routes, middleware=[guard], exception_handlers={HTTPException: _refused})

    async def _runs_page(self, request: Request) -> Response:
        if "token" in request.query_params:
            return await self._sign_in(request, request.query_params["token"])
        return HTMLResponse(page("runs", session=self.access.session, directory=str(self.shelf.directory)))

    async def _run_page(self, request: Request) -> Response:
        run = await self._known(request)
        return HTMLResponse(page("run", session=self.access.session, name=run.name, id=run.id))

    async def _login(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(HEADER_SECONDS):
                body = await _form(request)
        except TimeoutError:
            raise HTTPException(408, "the token did not come") from None
        given = parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]
        return await self._sign_in(request, given)

    async def _sign_in(self, request: Request, given: str) -> Response:
        if not self.access.knows_token(given):
            await asyncio.sleep(_WRONG_TOKEN_SECONDS)  # nobody tries many
            return HTMLResponse(page("login", told="That is not the token."), 401)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            self.access.cookie_name(request.url.port or 80),
            self.access.cookie_value,
            httponly=True,
            samesite="strict",
        )
        return answer

    async def _runs(self, request: Request) -> Response:
        view = await self.shelf.view()
        return JSONResponse({"runs": [run.as_json() for run in view.runs.values()], "all": view.all})

    async def _run(self, request: Request) -> Response:
        run = await self._known(request)
        path = self._path(run)
        config, summary = await asyncio.to_thread(
            lambda: (read_object(path / "config.json"), read_object(path / "summary.json"))
        )
        return JSONResponse({"run": run.as_json(), "config": config, "summary": summary})

    async def _trace(self, request: Request) -> Response:
        """Some epochs of the trace, as the report has them."""
        path = self._path(await self._known(request)) / "trace.json"
        async with self._heavy:
            drawn = await asyncio.to_thread(drawn_trace, path)
        if drawn is None:
            raise HTTPException(404, "the run has no trace that can be shown here")
        return Response(drawn, media_type="application/json")

    async def _report(self, request: Request) -> Response:
        """The run's report as a download: its scripts never run as a page of ours."""
        path = self._path(await self._known(request))
        try:
            async with self._heavy:
                report = await asyncio.to_thread(lambda: run_report(read_run(path)))
        except BadInput as error:
            raise HTTPException(409, str(error)) from error
        headers = {"content-disposition": 'attachment; filename="report.html"'}
        return Response(report.encode("utf-8", "replace"), media_type="text/html", headers=headers)

    async def _stop(self, request: Request) -> Response:
        run = await self._known(request)
        if run.status not in ("running", "stopping"):
            raise HTTPException(409, f"the run is {run.status}: there is nothing to stop")
        try:
            await asyncio.to_thread(StopFile(self._path(run)).ask)
        except BadInput as error:
            raise HTTPException(500, str(error)) from error
        self.shelf.forget_view()
        return JSONResponse({"status": "stopping"}, 202)

    async def _prometheus(self, request: Request) -> Response:
        view = await self.shelf.view()
        return PlainTextResponse(prometheus.render(view.runs.values()), media_type=prometheus.CONTENT_TYPE)

    async def _run_events(self, request: Request) -> Any:
        return self._stream(self._changes())

    async def _epoch_events(self, request: Request) -> Any:
        return self._stream(self._epochs(request.path_params["id"]))

    def _stream(self, events: AsyncGenerator[PageEvent | None]) -> EventStream:
        if self.streams.full:
            raise HTTPException(503, "too many pages are open: close some")
        return EventStream(events, self.streams)

    async def _changes(self) -> AsyncGenerator[PageEvent | None]:
        """All runs, then only those that have changed."""
        told: dict[str, RunState] | None = None
        async for _ in self._looks():
            view = await self.shelf.view()
            changed = [run for run in view.runs.values() if told is None or told.get(run.id) != run]
            gone = [run_id for run_id in told or {} if run_id not in view.runs]
            if told is None or changed or gone:
                runs = [run.as_json() for run in changed]
                yield "runs", {"first": told is None, "changed": runs, "gone": gone, "all": view.all}
            else:
                yield None
            told = dict(view.runs)

    async def _epochs(self, run_id: str) -> AsyncGenerator[PageEvent | None]:
        """State and epochs of one run, which may vanish and come again."""
        told: RunState | None = None
        feed: EpochFeed | None = None
        async for _ in self._looks():
            view = await self.shelf.view()
            run, path = view.runs.get(run_id), self.shelf.path(run_id)
            if run is None or path is None:
                if feed is not None or told is None:
                    yield "gone", {}
                feed = None
                continue
            feed = feed or EpochFeed(path / "metrics.jsonl")
            more = True
            while more:
                restarted, rows, more = await asyncio.to_thread(feed.read)
                if restarted or rows:
                    yield "epochs", {"restarted": restarted, "rows": rows}
            yield None if run == told else ("run", run.as_json())
            told = run

    async def _looks(self) -> AsyncIterator[None]:
        while not self.streams.over.is_set():
            yield
            with suppress(TimeoutError):
                await asyncio.wait_for(self.streams.over.wait(), self._look_seconds)

    async def _known(self, request: Request) -> RunState:
        run = (await self.shelf.view()).runs.get(request.path_params["id"])
        if run is None:
            raise HTTPException(404, "there is no such run, or it was moved")
        return run

    def _path(self, run: RunState) -> Path:
        path = self.shelf.path(run.id)
        if path is None:
            raise HTTPException(404, "the run was moved")
        return path


async def _form(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _FORM_BYTES:
            raise HTTPException(413, "that is no token")
    return body


async def _asset(request: Request) -> Response:
    found = assets().get(request.path_params["name"])
    if found is None:
        raise HTTPException(404, "there is no such file")
    return Response(found[0], media_type=found[1], headers={"cache-control": "no-cache"})


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if request.url.path.startswith(("/api/", "/events")):
        return JSONResponse({"error": error.detail}, error.status_code)
    return HTMLResponse(page("error", told=error.detail), error.status_code)
