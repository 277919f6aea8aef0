# Images of iceberg-cli. Neither runs as root.
#
#   docker build -t iceberg-cli .                                 without Spark
#   docker build --target spark -t iceberg-cli:spark .            with Spark and Java
#   docker build --build-arg EXTRAS=s3,rest -t iceberg-cli .      with other extras of pyproject.toml
#
#   docker run --rm iceberg-cli --version

ARG PYTHON=3.13

FROM python:${PYTHON}-slim-trixie AS build
ARG EXTRAS=s3,gcs,azure,rest,rewrite,order,sql,glue,hive,import,otel,report
WORKDIR /source
COPY LICENSE README.md iceberg_table_maintenance.py pyproject.toml ./
COPY completions completions
COPY man man
COPY iceberg_cli iceberg_cli
RUN python3 -m venv /opt/iceberg-cli && /opt/iceberg-cli/bin/pip install --no-cache-dir ".[${EXTRAS}]"

FROM build AS build-spark
RUN /opt/iceberg-cli/bin/pip install --no-cache-dir ".[spark]"

FROM python:${PYTHON}-slim-trixie AS base
# The number is what Kubernetes holds against runAsNonRoot.
RUN useradd --uid 10001 --user-group --create-home iceberg-cli
ENV PATH=/opt/iceberg-cli/bin:${PATH}
WORKDIR /home/iceberg-cli
ENTRYPOINT ["iceberg-cli"]
CMD ["--help"]

FROM base AS spark
# The archive of Debian has no version but its newest.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-21-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build-spark /opt/iceberg-cli /opt/iceberg-cli
USER 10001:10001

# The last target is the one that is built where none is named.
FROM base AS slim
COPY --from=build /opt/iceberg-cli /opt/iceberg-cli
USER 10001:10001
