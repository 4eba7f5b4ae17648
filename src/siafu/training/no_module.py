"""Refusal of what people give in the place of a model."""

from torch import nn

from siafu.base.errors import BadInput


def refuse_no_module(model: object) -> None:
    """Refuse a name, a class, and a module that takes no edges."""
    if isinstance(model, nn.Module):
        if all(type(each).__module__.startswith("torch.nn.modules.") for each in model.modules()):
            raise BadInput(
                f"the model is PyTorch's {type(model).__name__}, which takes no edges: give a module with forward(x, edge_index), or "
                "such as siafu.nn.GCN(graph.num_features, 64, 2, graph.num_classes)"
            )
        return
    given = f"the class {model.__name__}" if isinstance(model, type) else repr(model)
    raise BadInput(
        f"the model is {given}: give a module, such as siafu.nn.GCN(graph.num_features, 64, 2, graph.num_classes)"
    )
