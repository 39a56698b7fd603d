# syntax=docker/dockerfile:1
# Images of the server, with the operating system installation environment, and of etcd, for trying replicas.
# The build needs this directory and the network only.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# Linked statically: the worker runs in an initramfs without libraries.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package all-in-one --package worker --bin tinwright --bin tinwright-worker \
    && install -D --target-directory /out target/*/release/tinwright target/*/release/tinwright-worker

FROM debian:bookworm-slim AS osie
RUN apt-get update \
    && apt-get install --yes --no-install-recommends busybox-static ca-certificates e2fsprogs kmod
COPY --from=build /out/ /usr/local/bin/
# Needs apt's package lists: it downloads Debian's kernel.
RUN tinwright osie build --output /osie

FROM debian:bookworm-slim AS etcd
RUN apt-get update \
    && apt-get install --yes --no-install-recommends etcd-client etcd-server \
    && rm -rf /var/lib/apt/lists/*
ENV ETCDCTL_API=3
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s CMD ["etcdctl", "endpoint", "health"]
ENTRYPOINT ["etcd"]

FROM debian:bookworm-slim AS tinwright
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates curl ipmitool ipxe \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /out/tinwright /usr/local/bin/
COPY --from=osie /osie/ /usr/share/tinwright/osie/
ENV TINWRIGHT_DATA=/var/lib/tinwright TINWRIGHT_OSIE=/usr/share/tinwright/osie
VOLUME /var/lib/tinwright
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s \
    CMD ["curl", "--fail", "--silent", "--show-error", "http://127.0.0.1:9464/readyz"]
ENTRYPOINT ["tinwright"]
CMD ["serve"]
