#!/bin/sh
# Makes what the machine of tests/power_cut.rs boots: a Debian kernel, and an initramfs of one static program.
# usage: guest.sh CACHE PROGRAM INITRAMFS      prints the kernel's path; nothing is installed
set -eu
cache=$1 program=$2 initramfs=$3
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
strip -o "$root/init" "$program"
(cd "$root" && echo init | cpio --create --format=newc --owner=0:0 --quiet) | gzip -1 > "$initramfs"
"$(dirname "$0")/kernel.sh" "$cache"
