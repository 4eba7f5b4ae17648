"""The type in which constant rows are stored."""

import torch

from siafu.nn.tensors import is_halved
from siafu.program.program import Program


def constant_type(program: Program, dtype: torch.dtype) -> torch.dtype:
    """Type that constant rows are stored in: half their memory where the model asks for that."""
    sites = program.cut.recording.sites
    asked = bool(sites) and all(is_halved(site.gather.precision) for site in sites)
    return torch.bfloat16 if asked and dtype == torch.float32 else dtype
