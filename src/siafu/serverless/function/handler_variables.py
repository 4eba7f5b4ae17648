"""The environment variables that a handler needs, wherever it runs."""

from siafu.cost.lambda_prices import VCPU_MB

_MEMORY = {
    # Rows' memory stays with the process from one operation to the next: giving it back to the system and taking it again took a
    # sixth of a task's time. Only what is larger than 32 MB is given back, and all of it with over 512 MB free.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(512 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


def handler_variables(memory_mb: int) -> dict[str, str]:
    """Variables for a Lambda of so much memory: it has as many threads as its share of processors allows."""
    return {"OPENBLAS_NUM_THREADS": str(max(1, memory_mb // VCPU_MB)), **_MEMORY}
