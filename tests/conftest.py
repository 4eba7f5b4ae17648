"""What every test may use."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real datasets that are kept beside the repository, or at `$SIAFU_SHARED`; tests skip without them."""
    shared = os.environ.get("SIAFU_SHARED")
    data = (Path(shared) if shared else _REPOSITORY.parent / "shared") / "data"
    if not data.is_dir():
        pytest.skip(f"no shared data at {data}: set SIAFU_SHARED to where it is")
    return data


@pytest.fixture(autouse=True)
def same_random_numbers_every_time() -> None:
    """A test that fails, fails again."""
    import torch

    torch.manual_seed(0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--cov`, tests that go over the same lines again and again do not count: tracing would double their time.

    The others reach nine lines of ten.
    """
    if config.pluginmanager.hasplugin("_cov"):
        for item in items:
            again = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
            if again or item.get_closest_marker("slow") or "checker" in item.path.parts:
                item.add_marker(pytest.mark.no_cover)


# A busy machine is slow at making inputs too: that is no fault of a test.
settings.register_profile("siafu", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("siafu")
