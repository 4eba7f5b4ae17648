"""Events and instructions in plain words. Epochs are counted from 1 here, as in metrics and traces."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from siafu.pipeline import events as happens
from siafu.pipeline import instructions as does
from siafu.serverless.control import events as lambda_happens
from siafu.serverless.control import instructions as lambda_does


def said(what: Any) -> str:
    """An event or an instruction, as a clause without its subject's name."""
    words = _WORDS.get(type(what))
    return _plainly(what) if words is None else words(what)


def _plainly(what: Any) -> str:
    """Name and fields of an event or instruction that has no words of its own."""
    told = (f"{each.name} {getattr(what, each.name)}" for each in fields(what) if each.name != "incarnation")
    return " ".join([type(what).__name__, *told])


def _who(interval: int | None) -> str:
    return "the evaluation" if interval is None else f"interval {interval}"


def _asked(event: happens.WeightsAsked) -> str:
    version = "the latest version" if event.version is None else f"version {event.version}"
    oldest = "" if event.oldest is None else f", {event.oldest} or later,"
    return f"{_who(event.interval)} asks for {version}{oldest} for epoch {event.epoch + 1}"


def _recorded(record: does.RecordEpoch) -> str:
    evaluated = "" if record.version is None else f", evaluated with version {record.version}"
    return f"record epoch {record.epoch + 1}{evaluated}"


def _rows(what: happens.RowsArrived | does.KeepRows | does.CompareRows) -> str:
    return f"rows of interval {what.interval}, stage {what.stage}, {what.lane} epoch {what.epoch + 1}"


def _gradient(what: Any) -> str:
    return f"gradient of interval {what.interval} for phase {what.phase}, epoch {what.epoch + 1}"


def _stopped(stop: does.Stop) -> str:
    best = "" if stop.best is None else f", best epoch {stop.best + 1}"
    return f"the run ends ({stop.reason}) after epoch {stop.epochs}{best}"


def _ended(event: lambda_happens.InvocationEnded) -> str:
    how = "" if event.failure is None else f": {event.failure}"
    return f"Lambda {event.invocation} ended{how}"


_WORDS: dict[type[Any], Callable[[Any], str]] = {
    # To the servers
    happens.Begin: lambda e: (
        f"begins incarnation {e.incarnation} after epoch {e.start.epoch}, version {e.start.version}"
    ),
    happens.Resume: lambda e: (
        f"takes a lost server's place after epoch {e.start.epoch}, version {e.start.version}"
    ),
    happens.TakenOver: lambda e: f"{e.server} was lost, and is there again in life {e.life}",
    happens.Closed: lambda e: f"versions before {e.oldest} may go",
    happens.Proceed: lambda e: f"intervals may enter epochs up to {e.until}",
    happens.CopyStands: lambda e: f"{e.copy} is {'there' if e.there else 'gone'}, in life {e.life}",
    happens.RunAhead: lambda e: (
        f"run forward tasks of epoch {e.epoch + 1} beforehand, with version {e.version}"
    ),
    happens.EvaluationStarted: lambda e: (
        f"evaluation after epoch {e.epoch + 1} begins, version {e.version} of weight server {e.weights}"
    ),
    happens.Settle: lambda e: f"weights are to settle at version {e.anchor.version}, epoch {e.anchor.epoch}",
    happens.TaskDone: lambda e: f"{e.task} is done",
    happens.TaskStarted: lambda e: f"{e.task} begins to read",
    happens.RowsArrived: lambda e: f"{_rows(e)}, arrive",
    happens.ServerAdvanced: lambda e: (
        f"graph server {e.server} has come to epoch {e.epoch + 1}, stage {e.stage}"
    ),
    happens.WeightsGranted: lambda e: (
        f"weight server {e.server} gives {_who(e.interval)} version {e.version} for epoch {e.epoch + 1}"
    ),
    happens.GradientTaken: lambda e: f"{_gradient(e)}, is taken",
    happens.WeightsAsked: _asked,
    happens.WeightsReleased: lambda e: f"{_who(e.interval)} releases its version of epoch {e.epoch + 1}",
    happens.GradientArrived: lambda e: f"{_gradient(e)}, arrives",
    happens.UpdateDone: lambda e: f"version {e.version} of its parameters is made",
    happens.WeightsMade: lambda e: f"weight server {e.home} has made its part of version {e.version}",
    happens.RatesSet: lambda e: f"version {e.version} is to be made with the rates of its epoch",
    happens.NormsTold: lambda e: f"weight server {e.home} tells its gradients' norms for version {e.version}",
    happens.UpdateDue: lambda e: f"version {e.version} waits for room",
    happens.RoomMade: lambda e: f"weight server {e.server} has room up to version {e.version}",
    # To the run
    happens.Ready: lambda e: f"{e.sender} is ready",
    happens.Noted: lambda e: f"{e.sender} knows of {e.server} in life {e.life}",
    happens.EpochFinished: lambda e: f"graph server {e.server} has finished {e.lane} epoch {e.epoch + 1}",
    happens.StateMade: lambda e: f"weight server {e.home} gives the run its part of version {e.version}",
    happens.Settled: lambda e: f"weight server {e.server} has settled at version {e.settle.anchor.version}",
    happens.BestKept: lambda e: f"the best model, of epoch {e.epoch + 1}, is kept",
    happens.CheckpointAsked: lambda e: "a checkpoint is asked for",
    happens.CheckpointSaved: lambda e: f"the checkpoint after epoch {e.epochs} is saved",
    happens.EpochClosed: lambda e: (
        f"epoch {e.epoch + 1} was seen" + (", and the run is to end" if e.stop else "")
    ),
    happens.StopAsked: lambda e: "a stop is asked for",
    happens.HandOverAsked: lambda e: f"{e.server} is to be handed over",
    happens.CopyMade: lambda e: f"{e.copy} is made, in life {e.life}",
    happens.CopyGone: lambda e: f"{e.copy} is gone, in life {e.life}",
    happens.ServerGone: lambda e: f"{e.server} is lost",
    # Instructions
    does.Send: lambda i: f"tell {i.to}: {said(i.message)}",
    does.Adopt: lambda i: "begin with what was done as an eager copy",
    does.Abandon: lambda i: "abandon the tasks of the incarnation before",
    does.RunTask: lambda i: f"run {i.task}, version {i.version}",
    does.BeginTask: lambda i: f"begin {i.task}, with rows of the sources before interval {i.until}",
    does.KeepResult: lambda i: f"keep the result of {i.task}",
    does.KeepRows: lambda i: f"keep {_rows(i)}",
    does.CompareRows: lambda i: f"compare {_rows(i)}, which came before",
    does.ForgetGradients: lambda i: f"let go of gradients of the epochs up to {i.before}",
    does.Restore: lambda i: f"restore version {i.version} as it was after epoch {i.epochs}",
    does.Accumulate: lambda i: f"add the {_gradient(i)}, to version {i.version}",
    does.Update: lambda i: f"make version {i.version}",
    does.TellNorms: lambda i: f"tell all homes the gradients' norms for version {i.version}",
    does.KeepWeights: lambda i: f"keep weight server {i.home}'s part of version {i.version}",
    does.FreeWeights: lambda i: f"free version {i.version}",
    does.KeepBest: lambda i: f"keep version {i.version} as the best, of epoch {i.epoch + 1}",
    does.RecordEpoch: _recorded,
    does.KeepState: lambda i: f"keep weight server {i.home}'s part of version {i.version} and its state",
    does.CloseEpochs: lambda i: f"{i.epochs} epochs are closed",
    does.HoldCheckpoint: lambda i: f"hold version {i.version} for a checkpoint after epoch {i.epochs}",
    does.SaveCheckpoint: lambda i: f"save a checkpoint after epoch {i.epochs}, version {i.version}",
    does.Rewind: lambda i: (
        f"go back to the checkpoint after epoch {i.epochs}"
        if i.to_checkpoint
        else f"{i.epochs} epochs are recorded and stay"
    ),
    does.Replace: lambda i: f"replace {i.server}",
    does.Stop: _stopped,
    # Lambdas
    lambda_happens.TaskQueued: lambda e: f"task {e.task} ({e.kind}) is queued",
    lambda_happens.TasksAbandoned: lambda e: "all tasks are abandoned",
    lambda_happens.CountChanged: lambda e: f"there may be {e.count} Lambdas",
    lambda_happens.ClockAdvanced: lambda e: "the clock has advanced",
    lambda_happens.LambdaAsks: lambda e: f"Lambda {e.invocation} asks for a task",
    lambda_happens.ResultArrived: lambda e: f"Lambda {e.invocation} brings the result of task {e.task}",
    lambda_happens.TaskReturned: lambda e: f"Lambda {e.invocation} gives task {e.task} back: {e.why}",
    lambda_happens.InvocationEnded: _ended,
    lambda_does.Invoke: lambda i: f"invoke Lambda {i.invocation} in slot {i.slot}",
    lambda_does.CancelInvocation: lambda i: f"cancel Lambda {i.invocation}",
    lambda_does.OfferTask: lambda i: f"offer task {i.task} to Lambda {i.invocation}",
    lambda_does.DismissLambda: lambda i: f"dismiss Lambda {i.invocation}",
    lambda_does.Deliver: lambda i: f"take the result of task {i.task} from Lambda {i.invocation}",
    lambda_does.Drop: lambda i: f"drop the result of task {i.task} from Lambda {i.invocation}: {i.reason}",
    lambda_does.WakeAt: lambda i: "set an alarm",
    lambda_does.Fail: lambda i: f"fail: {i.message}",
}
