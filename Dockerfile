# Images of the lab in compose.yaml, and of a server on the host's network (compose.host.yaml).
# The build needs this directory and the network only, and BuildKit, which Docker uses since version 23.
#
# `cargo rack lab` sets these arguments, to build the same images where there is no registry.
ARG BASE=debian:bookworm-slim
ARG TOOLS_BASE=debian:bookworm-slim
ARG SYSTEM_BASE=debian:bookworm-slim
ARG PROGRAMS=build
ARG OSIE=osie-build

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# Linked statically: the worker runs in an initramfs without libraries.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package all-in-one --package worker --bin tinwright --bin tinwright-worker \
    && install -D --target-directory /out target/*/release/tinwright target/*/release/tinwright-worker

FROM debian:bookworm-slim AS osie-build
RUN apt-get update \
    && apt-get install --yes --no-install-recommends busybox-static ca-certificates e2fsprogs kmod
COPY --from=build /out/ /usr/local/bin/
# Needs apt's package lists: it downloads Debian's kernel.
RUN tinwright osie build --output /osie

FROM ${PROGRAMS} AS programs
FROM ${OSIE} AS osie

# The distributed store.
FROM ${BASE} AS etcd
RUN --mount=type=bind,source=lab/install.sh,target=/install.sh sh /install.sh etcd-client etcd-server
RUN install --directory --owner 10001 --group 10001 --mode 0700 /var/lib/etcd
ENV ETCDCTL_API=3
USER 10001:10001
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s CMD ["etcdctl", "endpoint", "health"]
ENTRYPOINT ["etcd"]

# Every service but network boot.
FROM ${BASE} AS tinwright
RUN --mount=type=bind,source=lab/install.sh,target=/install.sh sh /install.sh ca-certificates curl ipmitool openssl
# Docker gives an empty volume the owner of the directory that it is mounted on.
RUN install --directory --owner 10001 --group 10001 --mode 0700 /var/lib/tinwright /var/lib/tinwright/secrets \
        /srv/identities/netboot /srv/identities/metadata /srv/identities/gateway
COPY --from=programs /out/tinwright /usr/local/bin/
ENV TINWRIGHT_DATA=/var/lib/tinwright
USER 10001:10001
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s \
    CMD ["curl", "--fail", "--silent", "--show-error", "http://127.0.0.1:9464/readyz"]
ENTRYPOINT ["tinwright"]
CMD ["serve"]

# Network boot, with loaders and the in-memory environment.
FROM tinwright AS netboot
USER root
RUN --mount=type=bind,source=lab/install.sh,target=/install.sh sh /install.sh ipxe
COPY --from=osie /osie/ /usr/share/tinwright/osie/
ENV TINWRIGHT_OSIE=/usr/share/tinwright/osie
USER 10001:10001

# All services in one container on the host's network, where ports below 1024 need a capability. The program has its capabilities from the
# file: Docker gives none to a user other than root. It does not start in a container that lacks one of them.
FROM netboot AS host
USER root
RUN --mount=type=bind,source=lab/install.sh,target=/install.sh sh /install.sh libcap2-bin \
    && setcap cap_net_bind_service,cap_net_raw=ep /usr/local/bin/tinwright
USER 10001:10001

# A machine: QEMU, and a BMC that switches it.
FROM ${TOOLS_BASE} AS machine
RUN --mount=type=bind,source=lab/install.sh,target=/install.sh \
    sh /install.sh iproute2 ipxe-qemu libcap2-bin openipmi qemu-system-x86 qemu-utils util-linux
# Docker gives capabilities to root only, so setpriv gets the one for the network from the file, and passes it on to `ip`.
RUN install --mode 0755 /usr/bin/setpriv /usr/local/bin/with-net-admin \
    && setcap cap_net_admin=eip /usr/local/bin/with-net-admin \
    && install --directory --owner 10001 --group 10001 --mode 0700 /var/lib/machine
COPY --chmod=0755 lab/machine.sh lab/chassis.sh /usr/local/bin/
USER 10001:10001
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s CMD ["test", "-e", "/run/machine/ready"]
ENTRYPOINT ["machine.sh"]

# The root file system of the system that the machine gets.
FROM ${SYSTEM_BASE} AS system
RUN --mount=type=bind,source=lab/install.sh,target=/install.sh \
    sh /install.sh ca-certificates cloud-init dbus e2fsprogs ifupdown initramfs-tools iproute2 isc-dhcp-client kmod \
        linux-image-cloud-amd64 netbase openssh-server procps python3 systemd-sysv udev util-linux zstd

FROM ${TOOLS_BASE} AS disk-build
RUN --mount=type=bind,source=lab/install.sh,target=/install.sh \
    sh /install.sh dosfstools e2fsprogs fdisk mtools syslinux syslinux-common zstd
RUN --mount=type=bind,from=system,target=/system --mount=type=bind,source=lab/disk.sh,target=/disk.sh \
    sh /disk.sh /system /disk

# The disk image, with a shell only: its files fill a volume.
FROM ${BASE} AS disk
COPY --from=disk-build /disk/ /srv/images/
USER 10001:10001
CMD ["true"]
