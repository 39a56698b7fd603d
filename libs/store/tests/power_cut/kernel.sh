#!/bin/sh
# Downloads Debian's cloud kernel, once, for virtual machines of tests. It has NVMe and ext4 built in, so no module is needed.
# usage: kernel.sh CACHE      prints the kernel's path; nothing is installed
set -eu
cache=$1
kernel=$cache/vmlinuz-6.1-cloud
if [ ! -e "$kernel" ]; then
    mkdir -p "$cache"
    work=$(mktemp -d -p "$cache")
    trap 'rm -rf "$work"' EXIT
    package=$(apt-cache pkgnames linux-image-6.1.0 | grep -E '^linux-image-6\.1\.0-[0-9]+-cloud-amd64$' | sort -V | tail -n 1)
    [ -n "$package" ] || { echo "no package linux-image-6.1.0-NN-cloud-amd64: run apt-get update" >&2; exit 1; }
    (cd "$work" && apt-get -q -o APT::Sandbox::User=root download "$package" >&2 && dpkg-deb -x ./*.deb .)
    mv "$work"/boot/vmlinuz-* "$kernel"
fi
echo "$kernel"
