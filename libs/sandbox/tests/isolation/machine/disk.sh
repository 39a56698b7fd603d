#!/bin/sh
# Writes the disk of the machine of machine.rs: an ext4 with the tests, their helper under its path here, and the
# programs of this host that tests start.
# usage: disk.sh DISK TESTS HELPER
set -eu
disk=$1 tests=$2 helper=$3 init=$(realpath "$(dirname "$0")/init.sh")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cd "$root"
mkdir -p usr/bin usr/lib usr/lib64 usr/sbin dev proc sys tmp root run var etc ".$(dirname "$helper")"
for folder in bin lib lib64 sbin; do ln -s "usr/$folder" "$folder"; done
cp /etc/passwd etc/
strip -o "./$helper" "$helper"
strip -o tests "$tests"
cp "$init" init
chmod 755 init tests "./$helper"
cp -L /bin/busybox bin/busybox
for name in bash cp false id qemu-img rm setsid sh sleep true unshare; do
    cp -L "/usr/bin/$name" usr/bin/
    ldd "/usr/bin/$name" | grep -o '/[^ )]*' | while read -r library; do
        mkdir -p ".$(dirname "$library")"
        cp -L "$library" ".$library"
    done
done
mkfs.ext4 -q -F -d "$root" "$disk" 512M
