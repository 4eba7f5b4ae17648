"""make_fx, by one thread at a time: while it traces, it replaces methods that all modules share."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from torch import fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

_one_at_a_time = threading.RLock()
_REPLACED = ("__call__", "__getattr__")


def traced(function: Callable[..., Any], *inputs: Any, **options: Any) -> fx.GraphModule:
    """The operations that `function` does on `inputs`; `options` are make_fx's.

    Whatever happens, `nn.Module` is afterwards as it was.
    """
    with _one_at_a_time:
        before: Mapping[str, Any] = {name: getattr(nn.Module, name) for name in _REPLACED}
        try:
            return make_fx(function, **options)(*inputs)
        finally:
            for name, method in before.items():
                setattr(nn.Module, name, method)
