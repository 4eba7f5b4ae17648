"""Clients of AWS for one account and region, and the meaning of their errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from siafu.base.errors import BadInput, SiafuError
from siafu.serverless.control.failure import Failure, FailureKind, one_line

_THROTTLED = {"TooManyRequestsException", "Throttling", "ThrottlingException", "RequestLimitExceeded"}
_NO_FUNCTION = {"ResourceNotFoundException"}
_DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "KMSAccessDeniedException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
    "OptInRequired",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
}
# Of the service or of the moment, though their status says that the request is at fault.
_UNAVAILABLE = {"ResourceConflictException", "ResourceNotReadyException", "SnapStartNotReadyException"}
_OF_THE_MOMENT = (FailureKind.THROTTLED, FailureKind.UNAVAILABLE)


@dataclass(frozen=True, slots=True)
class Place:
    """Account and region on AWS. A field that is None comes from the environment and the configuration of AWS's own tools.

    endpoint: the URL of something that speaks AWS's protocol in its place
    """

    region: str | None = None
    profile: str | None = None
    endpoint: str | None = None

    def client(self, service: str, **settings: Any) -> Any:
        """A client of one service; `settings` are botocore's `Config`."""
        _check_boto()
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        try:
            session = boto3.Session(profile_name=self.profile, region_name=self.region)
            return session.client(service, endpoint_url=self.endpoint, config=Config(**settings))
        except (BotoCoreError, ValueError) as error:
            raise BadInput(f"AWS cannot be called: {one_line(str(error))}; {_advice(error)}") from error


def failure_from(error: Exception, where: str) -> Failure:
    """The failure of an invocation that an error of boto3 means."""
    return Failure(_kind(error), where, one_line(str(error)))


def may_have_run(error: Exception) -> bool:
    """Whether the call may have run and be billed: it was sent, and no answer came."""
    from botocore import exceptions as of_boto

    return isinstance(
        error, of_boto.ReadTimeoutError | of_boto.ConnectionClosedError | of_boto.ResponseStreamingError
    )


@contextmanager
def aws_errors(doing: str) -> Iterator[None]:
    """Turn errors of boto3 into one line: `BadInput` where credentials, region or options are wrong, else `SiafuError`."""
    _check_boto()
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        told = f"AWS did not {doing}: {one_line(str(error))}; {_advice(error)}"
        of_aws = isinstance(error, ClientError) and _kind(error) in _OF_THE_MOMENT
        raise (SiafuError if of_aws else BadInput)(told) from error


def _check_boto() -> None:
    try:
        import boto3  # noqa: F401
        import botocore  # noqa: F401
    except ImportError:
        raise BadInput("AWS is called with boto3: pip install 'siafu[aws]'") from None


def error_code(error: Exception) -> str:
    """AWS's name of an error; '' when it is not one of a service."""
    response = getattr(error, "response", None) or {}
    return str(response.get("Error", {}).get("Code", ""))


def _kind(error: Exception) -> FailureKind:
    from botocore import exceptions as of_boto

    code = error_code(error)
    if isinstance(error, of_boto.ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        if code in _THROTTLED or "Throttl" in code or status == 429:
            return FailureKind.THROTTLED
        if code in _DENIED or status == 401:
            return FailureKind.DENIED
        if code in _NO_FUNCTION:
            return FailureKind.NO_FUNCTION
        if code in _UNAVAILABLE or status >= 500:
            return FailureKind.UNAVAILABLE
        return FailureKind.DENIED if status == 403 else FailureKind.UNFIT
    if isinstance(error, of_boto.ConnectionError | of_boto.HTTPClientError):
        return FailureKind.UNAVAILABLE
    if _is_about_credentials(error):
        return FailureKind.DENIED
    return FailureKind.UNFIT if isinstance(error, of_boto.ParamValidationError) else FailureKind.UNAVAILABLE


def _is_about_credentials(error: Exception) -> bool:
    from botocore import exceptions as of_boto

    return isinstance(
        error,
        of_boto.NoCredentialsError
        | of_boto.PartialCredentialsError
        | of_boto.CredentialRetrievalError
        | of_boto.ProfileNotFound
        | of_boto.TokenRetrievalError
        | of_boto.SSOError,
    )


def _advice(error: Exception) -> str:
    from botocore import exceptions as of_boto

    if isinstance(error, of_boto.NoRegionError | of_boto.InvalidRegionError):
        return "name a region with --region, like eu-central-1"
    if isinstance(error, of_boto.ConnectionError | of_boto.HTTPClientError):
        return "check --region, --endpoint and the network"
    if _is_about_credentials(error) or _kind(error) is FailureKind.DENIED:
        return "check the credentials (AWS_PROFILE, AWS_ACCESS_KEY_ID …) and what they may do"
    if _kind(error) is FailureKind.NO_FUNCTION:
        return "run `siafu lambda deploy`, or name the right function, region and account"
    if error_code(error) == "DependencyViolation":
        return "Lambda gives network interfaces back after up to 40 minutes: do the same again then"
    if _kind(error) in _OF_THE_MOMENT:
        return "try again in a minute"
    return "check the options"
