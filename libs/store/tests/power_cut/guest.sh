#!/bin/sh
# Makes what the machine of tests/power_cut.rs boots: a Debian kernel, and an initramfs of one static program.
# usage: guest.sh CACHE PROGRAM INITRAMFS      prints the kernel's path; nothing is installed
set -eu
cache=$1 program=$2 initramfs=$3

# The cloud kernel has NVMe and ext4 built in, so no module is needed.
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

root=$(mktemp -d)
trap 'rm -rf "$root" "${work:-$root}"' EXIT
strip -o "$root/init" "$program"
(cd "$root" && echo init | cpio --create --format=newc --owner=0:0 --quiet) | gzip -1 > "$initramfs"
echo "$kernel"
