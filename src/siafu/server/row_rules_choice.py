"""Which rule updates learnt rows of vertices: the one that is asked for, or that `nn.Embedding(…, sparse=True)` means."""

from collections.abc import Collection

from torch import nn

from siafu.base.errors import BadInput
from siafu.options import Options
from siafu.weights.groups import parameter_groups, read_groups


def row_rules_of(model: nn.Module, options: Options, names: Collection[str]) -> dict[str, str]:
    """Rules by the names of parameters; those without one are updated as all weights are.

    names: parameters with a row for each vertex
    """
    learnt = [name for name, each in model.named_parameters() if name in names and each.requires_grad]
    if options.row_optimizer is None:
        marked = [name for name in learnt if _is_marked_sparse(model, name)]
        found = {} if options.optimizer == "sgd" else dict.fromkeys(marked, "sparse_adam")
    elif not learnt:
        raise BadInput(
            f"row_optimizer is {options.row_optimizer}, and the model learns no row for each vertex: leave it out, or give it an "
            "nn.Embedding of all vertices or siafu.nn.LearntRows"
        )
    else:
        found = dict.fromkeys(learnt, options.row_optimizer)
    _refuse_decay(model, options, found)
    return found


def _is_marked_sparse(model: nn.Module, name: str) -> bool:
    owner = model.get_submodule(name.rpartition(".")[0])
    return isinstance(owner, nn.Embedding) and owner.sparse


def _refuse_decay(model: nn.Module, options: Options, found: dict[str, str]) -> None:
    """Refuse a group that asks for weight decay of such rows; the run's own falls on the other weights."""
    if options.groups is None or not found:
        return
    asked = read_groups(options.groups)
    parameters = [name for name, _ in model.named_parameters()]
    for pattern, settings in asked.items():
        group = parameter_groups(parameters, {pattern: settings}, options.lr, 0.0)[0]
        for name in found.keys() & set(group.names):
            if group.weight_decay:
                raise BadInput(
                    f"group {pattern!r} has weight_decay {group.weight_decay:g}, and {found[name]} of {name} has none, as PyTorch's: "
                    "leave it out"
                )
