"""Sessions of botocore as this program uses them: what takes it long for no use here is left out."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from io import BytesIO
from typing import Any, Final

import aiobotocore.session
from botocore.awsrequest import AWSRequest
from botocore.loaders import Loader, create_loader
from botocore.utils import parse_timestamp

_SMALL_BYTES: Final = 1 << 20  # of a body: sending it for nothing costs less than to ask first


def new_session() -> aiobotocore.session.AioSession:
    """A session of its own, whose clients read listings quickly and send small objects without asking first."""
    session = aiobotocore.session.get_session()
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_time_of)
    session.register("before-sign.s3", _send_at_once)
    session.lazy_register_component(
        "data_loader", lambda: _descriptions(session.get_config_variable("data_path"))
    )
    return session


@cache
def _descriptions(data_path: str | None) -> Loader:
    """What botocore knows of the services, which no session changes: a process that opens many tables reads it once."""
    return create_loader(data_path)


def _time_of(value: Any) -> datetime:
    """A time in an answer. Those of listings are in ISO 8601, for which `dateutil` takes most of the time."""
    try:
        time = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        time = None
    # botocore knows the other forms, and what a time without a zone means.
    return parse_timestamp(value) if time is None or time.tzinfo is None else time


def _send_at_once(request: AWSRequest, **_: object) -> None:
    """Not to wait for `100 Continue` saves a round trip for each record of a journal."""
    if isinstance(request.data, BytesIO) and request.data.getbuffer().nbytes <= _SMALL_BYTES:
        del request.headers["Expect"]
