"""Which S3 services are known to keep conditional creates, and the probe of the others."""

from __future__ import annotations

import uuid

import pytest

from iceberg_cli.errors import Refused
from iceberg_cli.storage import Storage
from iceberg_cli.storage.conditional_create import is_known, probe, service_of
from iceberg_cli.storage.router import open_storage
from iceberg_cli.testing.memory_storage import MemoryStorage
from tests.servers import S3Server

KEYS = {"key": "AK", "secret": "a-secret-key"}


@pytest.mark.parametrize(
    "host",
    [
        "s3.amazonaws.com",
        "s3.us-east-1.amazonaws.com",
        "s3-us-west-2.amazonaws.com",
        "s3-external-1.amazonaws.com",
        "s3.dualstack.ap-southeast-2.amazonaws.com",
        "s3-fips.us-gov-west-1.amazonaws.com",
        "s3-fips.dualstack.us-east-2.amazonaws.com",
        "s3.cn-north-1.amazonaws.com.cn",
        "my.bucket.s3.eu-central-1.amazonaws.com",
        "ap-123456789012.s3-accesspoint.us-east-1.amazonaws.com",
        "ap-123456789012.s3-accesspoint-fips.dualstack.us-east-1.amazonaws.com",
        "bucket.vpce-0a1b2c3d-4e5f.s3.us-east-1.vpce.amazonaws.com",
        "accesspoint.vpce-0a1b2c3d-4e5f.s3.us-east-1.vpce.amazonaws.com",
        "b--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com",
        "s3-accelerate.amazonaws.com",
        "s3-accelerate.dualstack.amazonaws.com",
        "mfzwi23gnjvgw.mrap.accesspoint.s3-global.amazonaws.com",
        "S3.Us-East-1.AmazonAWS.com",
        "0123456789abcdef0123456789abcdef.r2.cloudflarestorage.com",
        "0123456789abcdef0123456789abcdef.eu.r2.cloudflarestorage.com",
    ],
)
def test_hosts_of_services_that_document_it_are_known(host: str) -> None:
    assert is_known(host, "s3://b")


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1",
        "minio.example.com",
        "s3.amazonaws.com.example.com",
        "s3.us-east-1.amazonaws.com.evil",
        "nots3.us-east-1.amazonaws.com",
        "ec2-203-0-113-25.compute-1.amazonaws.com",
        "ec2-203-0-113-25.us-west-2.compute.amazonaws.com",
        "s3-minio-1234567890.us-east-1.elb.amazonaws.com",
        "s3.execute-api.us-east-1.amazonaws.com",
        "vpce-0a1b-2c3d.vpce-svc-0a1b2c3d.us-east-1.vpce.amazonaws.com",
        "ap-123456789012.op-0123.s3-outposts.us-east-1.amazonaws.com",
        "ap-123456789012.s3-object-lambda.us-east-1.amazonaws.com",
        "storage.googleapis.com",
        "r2.cloudflarestorage.com",
        "r2.cloudflarestorage.com.example.com",
        "xr2.cloudflarestorage.com",
    ],
)
def test_every_other_host_is_not(host: str) -> None:
    assert not is_known(host, "s3://b")


@pytest.mark.parametrize(
    ("environment", "options", "name"),
    [
        ({}, {"region": "eu-central-1"}, "https://s3.eu-central-1.amazonaws.com"),
        ({}, {"region": "cn-north-1"}, "https://s3.cn-north-1.amazonaws.com.cn"),
        (
            {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
            {"region": "us-west-2"},
            "https://s3.dualstack.us-west-2.amazonaws.com",
        ),
        (
            {"AWS_USE_FIPS_ENDPOINT": "true"},
            {"region": "us-east-2"},
            "https://s3-fips.us-east-2.amazonaws.com",
        ),
    ],
)
def test_without_an_endpoint_the_service_is_amazons_own(
    environment: dict[str, str],
    options: dict[str, str],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    without_aws_settings: None,
) -> None:
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    service = service_of("s3://bucket/t", open_storage({**KEYS, **options}))
    assert service is not None
    assert (service.name, service.is_known) == (name, True)


@pytest.fixture
def without_aws_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")


@pytest.mark.parametrize("bucket", ["ap-0123456789abcdef--op-s3", "ap-0123456789abcdef--ol-s3"])
def test_aliases_of_outposts_and_object_lambda_are_not_known_at_amazons_endpoint(
    bucket: str, without_aws_settings: None
) -> None:
    service = service_of(f"s3://{bucket}/t", open_storage({**KEYS, "region": "us-east-1"}))
    assert service is not None
    assert not service.is_known


def test_an_endpoint_of_the_environment_counts_as_one_of_an_option_does(
    monkeypatch: pytest.MonkeyPatch, without_aws_settings: None
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://minio.example.com:9000")
    service = service_of("s3://bucket/t", open_storage(KEYS))
    assert service is not None
    assert (service.name, service.is_known) == ("http://minio.example.com:9000", False)


def test_a_user_and_a_password_in_the_endpoint_are_no_part_of_its_name_nor_of_its_host() -> None:
    service = service_of("s3://b/t", AtEndpoint("https://s3.amazonaws.com:pass@minio.example.com:9000/x/"))
    assert service is not None
    assert (service.name, service.is_known) == ("https://minio.example.com:9000/x", False)


def test_a_storage_that_tells_no_endpoint_is_not_known_and_other_places_are_no_service() -> None:
    service = service_of("s3://bucket/t", MemoryStorage())
    assert service is not None
    assert (service.name, service.is_known) == ("s3://bucket", False)
    assert service_of("/data/t", open_storage()) is None
    assert service_of("gs://bucket/t", MemoryStorage()) is None
    assert service_of("hdfs://namenode/t", MemoryStorage()) is None


class AtEndpoint(MemoryStorage):
    """A storage that tells this endpoint."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url

    def endpoint(self, path: str) -> str:
        assert path.startswith("s3://")
        return self._url


# The probe


def probed(storage: Storage, folder: str) -> None:
    path = f"{folder}/probe"
    try:
        probe(storage, path, service="http://service")
    finally:
        assert storage.stat_many([path]) == [None]


def test_a_service_that_refuses_the_second_create_passes(versitygw: S3Server) -> None:
    probed(open_storage(versitygw.options), f"s3://{versitygw.bucket}/{uuid.uuid4()}")


def test_a_service_that_carries_out_the_second_create_is_refused(unconditional: S3Server) -> None:
    with pytest.raises(Refused, match="http://service: it does not keep conditional creates"):
        probed(open_storage(unconditional.options), f"s3://{unconditional.bucket}/{uuid.uuid4()}")


def test_a_service_that_has_no_conditional_creates_is_refused(without_conditions: S3Server) -> None:
    with pytest.raises(
        Refused, match="the service has no conditional creates: NotImplemented: If-None-Match"
    ):
        probed(open_storage(without_conditions.options), f"s3://{without_conditions.bucket}/{uuid.uuid4()}")


def test_a_service_that_says_no_and_replaces_the_object_is_refused() -> None:
    class Replacing(MemoryStorage):
        def put_if_absent(self, path: str, data: bytes) -> None:
            exists = self.stat_many([path]) != [None]
            self.replace(path, data)
            if exists:
                raise FileExistsError(path)

    with pytest.raises(Refused):
        probed(Replacing(), "s3://b/t")
