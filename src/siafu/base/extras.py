"""Extras: packages that `pip install 'siafu[EXTRA]'` brings, and the error that names a missing one."""

from siafu.base.errors import BadInput

MODULES: dict[str, tuple[str, ...]] = {
    "aws": ("boto3", "botocore"),
    "cluster": ("fsspec", "ray"),
    "parquet": ("pyarrow",),
    "partition": ("pymetis",),
    "tensorboard": ("tensorboard",),
}
"""Modules of each extra, by the names that are imported."""


def missing(error: ImportError) -> BadInput | None:
    """The error for a module that is missing; None: no extra brings it."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in MODULES.items():
        if module in modules:
            return BadInput(f"this needs {module}, which is not installed: pip install 'siafu[{extra}]'")
    return None
