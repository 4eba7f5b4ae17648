"""What tests of Lambdas share."""

from functools import cache

import pytest


@pytest.fixture(autouse=True)
def nothing_of_the_users_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials such as a server accepts that asks for none, and no configuration from outside."""
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")


@pytest.fixture(scope="session", autouse=True)
def models_of_aws_are_read_once() -> None:
    """boto3 reads the description of a service anew for every session: a tenth of a second and more."""
    try:
        from botocore import session
    except ImportError:
        return
    session.create_loader = cache(session.create_loader)
