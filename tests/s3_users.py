"""An S3 service whose users may do only what policies of its buckets allow: versitygw with accounts of its own."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.go_servers import VERSITYGW
from tests.servers import S3Server, free_port, go_binary, running

USERS: Final = ("one", "two")


@dataclass(frozen=True)
class GuardedS3(S3Server):
    """The service by its administrator's credentials; it has no bucket until a test makes one."""

    def options_of(self, user: str) -> dict[str, str]:
        """A user's, by the names that REST catalogs use."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": user,
            "s3.secret-access-key": f"secret-of-{user}",
            "s3.region": "us-east-1",
        }

    def new_bucket(self, user: str) -> str:
        """A bucket in which a user may do everything and others nothing."""
        name = f"b{uuid.uuid4().hex}"
        self.client().create_bucket(Bucket=name)
        self.deny(name, user)
        return name

    def deny(self, bucket: str, user: str, actions: Sequence[str] = (), *, keys: str = "*") -> None:
        """Let a user do everything in a bucket but some actions.

        Args:
            bucket: his policy is replaced.
            user: of `USERS`.
            actions: without `s3:`, for example `DeleteObject`.
            keys: of objects that the refusal is about; `*` stands for any characters.
        """
        arn = f"arn:aws:s3:::{bucket}"
        statements: list[dict[str, Any]] = [
            {
                "Effect": "Allow",
                "Principal": {"AWS": [user]},
                "Action": ["s3:*"],
                "Resource": [arn, f"{arn}/*"],
            }
        ]
        for action in actions:
            resource = arn if action == "ListBucket" else f"{arn}/{keys}"
            statements.append(
                {
                    "Effect": "Deny",
                    "Principal": {"AWS": [user]},
                    "Action": [f"s3:{action}"],
                    "Resource": [resource],
                }
            )
        policy = {"Version": "2012-10-17", "Statement": statements}
        self.client().put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))


@pytest.fixture(scope="session")
def guarded_s3() -> Iterator[GuardedS3]:
    """A service with `USERS`, none of whom is its administrator."""
    binary, port = str(go_binary(VERSITYGW)), free_port()
    accounts = {
        user: {
            "access": user,
            "secret": f"secret-of-{user}",
            "role": "user",
            "userID": 0,
            "groupID": 0,
            "projectID": 0,
        }
        for user in USERS
    }
    with tempfile.TemporaryDirectory(prefix="ice-s3-") as folder:
        data, users = Path(folder, "data"), Path(folder, "users")
        data.mkdir()
        users.mkdir()
        (users / "users.json").write_text(json.dumps({"accessAccounts": accounts}))
        found = GuardedS3(endpoint=f"http://127.0.0.1:{port}", bucket="")
        who = ["--access", found.options["key"], "--secret", found.options["secret"], "--iam-dir", str(users)]
        where = ["--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"]
        with running([binary, *who, *where, "posix", str(data)], port):
            yield found
