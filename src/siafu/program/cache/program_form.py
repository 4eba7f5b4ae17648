"""Form of a program: a compiled model as JSON, and read again for a model that has the same fingerprint."""

import json
from dataclasses import asdict
from typing import Any

from torch import nn

from siafu.nn import Layer
from siafu.nn.gathers import gather
from siafu.nn.gathers.gather import Gather
from siafu.program.cache.constants_form import NoForm, constants_form, read_constants
from siafu.program.phase_programs import PhasePrograms
from siafu.program.program import GatherStep, Program, ReduceStep, TensorPhase
from siafu.program.record.record import GatherSite, state_of
from siafu.program.record.statistics import RunningStatistics
from siafu.program.tensor_program import TensorProgram

_PROGRAMS = ("forward", "forward_keeping", "backward", "backward_kept", "last")


def program_form(program: Program, model: nn.Module) -> dict[str, Any]:
    """A compiled model as JSON has it. Raises NoForm."""
    sites = program.cut.recording.sites
    layers = {each: name for name, each in model.named_modules()}
    known: dict[str, Any] = {}
    return {
        "phases": [_phase_form(phase, known) for phase in program.phases],
        "gathers": [[_step_form(step, sites) for step in group] for group in program.gathers],
        "reduces": [[asdict(step) for step in group] for group in program.reduces],
        "sites": [_site_form(site, layers) for site in sites],
        "shapes": program.shapes,
        "constants": program.constants,
        "choices": program.choices,
        "made once": constants_form(program.cut),
        "programs": known,
    }


def read_program(form: dict[str, Any], model: nn.Module) -> Program:
    """The program of `model` that `form` describes."""
    known = {name: TensorProgram.from_json(json.dumps(each)) for name, each in form["programs"].items()}
    sites = [_read_site(each, model) for each in form["sites"]]
    return Program(
        tuple(_read_phase(each, known) for each in form["phases"]),
        tuple(tuple(_read_step(each, sites) for each in group) for group in form["gathers"]),
        {name: tuple(shape) for name, shape in form["shapes"].items()},
        tuple(form["constants"]),
        read_constants(form["made once"], state_of(model), sites),
        tuple(form["choices"]),
        tuple(tuple(_read_reduce(each) for each in group) for group in form["reduces"]),
    )


def _phase_form(phase: TensorPhase, known: dict[str, Any]) -> list[Any]:
    names = (phase.inputs, phase.outputs, phase.weights, phase.learnt, phase.differentiated)
    return [*names, phase.totals, phase.moved, _programs_form(phase.programs, known)]


def _read_phase(form: list[Any], known: dict[str, TensorProgram]) -> TensorPhase:
    inputs, outputs, weights, learnt, differentiated, totals, moved, programs = form
    return TensorPhase(
        tuple(inputs),
        tuple(outputs),
        tuple(weights),
        tuple(learnt),
        tuple(differentiated),
        _read_programs(programs, known),
        tuple(totals),
        tuple(moved),
    )


def _programs_form(programs: PhasePrograms, known: dict[str, Any]) -> list[str | None]:
    """Names of a phase's programs. A program that occurs twice is written once."""
    every = [getattr(programs, name) for name in _PROGRAMS]
    known.update({each.hash: json.loads(each.to_json()) for each in every if each is not None})
    return [None if each is None else each.hash for each in every]


def _read_programs(names: list[str | None], known: dict[str, TensorProgram]) -> PhasePrograms:
    forward, keeping, *others = [None if name is None else known[name] for name in names]
    if forward is None or keeping is None:
        raise ValueError("a phase without a program")
    return PhasePrograms(forward, keeping, *others)


def _step_form(step: GatherStep, sites: list[GatherSite]) -> list[Any]:
    return [sites.index(step.site), step.sent, step.out, step.learnt, step.differentiated]


def _read_step(form: list[Any], sites: list[GatherSite]) -> GatherStep:
    site, sent, out, learnt, differentiated = form
    return GatherStep(sites[site], tuple(sent), out, None, tuple(learnt), tuple(differentiated))


def _read_reduce(form: dict[str, Any]) -> ReduceStep:
    running = form["running"]
    return ReduceStep(
        form["sent"],
        form["out"],
        tuple(form["shape"]),
        form["variance"],
        form["differentiated"],
        None if running is None else RunningStatistics(**running),
    )


def _site_form(site: GatherSite, layers: dict[nn.Module, str]) -> list[Any]:
    if site.apply_edge is not None or site.weights or site.layer not in layers:
        raise NoForm  # a function on edges is code
    kind = type(site.gather)
    if getattr(gather, kind.__name__, None) is not kind:
        raise NoForm
    made = [kind.__name__, asdict(site.gather)]
    return [made, layers[site.layer], site.width, site.dropout, site.dropout_site]


def _read_site(form: list[Any], model: nn.Module) -> GatherSite:
    (kind, options), name, width, dropout, dropout_site = form
    made, layer = getattr(gather, kind), model.get_submodule(name)
    if not (isinstance(made, type) and issubclass(made, Gather) and isinstance(layer, Layer)):
        raise ValueError(f"a gather {kind!r} of layer {name!r}")
    return GatherSite(made(**options), layer, width, dropout, dropout_site)
