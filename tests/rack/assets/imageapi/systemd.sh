#!/bin/sh
# Makes a system image whose init is systemd, from the root file system of the images that the rack installs.
# usage: systemd.sh CACHE     reads CACHE/debian-root.tar, writes CACHE/systemd.sqsh
set -eu
cache=$1
exec 9>"$cache/systemd.lock"
flock 9
[ ! -e "$cache/systemd.sqsh" ] || exit 0
work=$(mktemp -d "$cache/systemd.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/root"
# Without the kernel and the programs that no container here runs.
tar -C "$work/root" -xf "$cache/debian-root.tar" --exclude='./boot/*' --exclude='./usr/lib/modules/*' --exclude='./usr/lib/python3*' \
    --exclude='./usr/share/*' --exclude='./var/lib/apt/*' --exclude='./var/cache/*' --exclude='./usr/lib/udev/hwdb*' --exclude='./dev/*' \
    --exclude='./usr/lib/*/perl*' --exclude='./usr/lib/*/gconv/*'
units=$work/root/etc/systemd/system
# A target of our own: those of Debian would configure the node's network.
cat > "$units/report.target" <<'UNIT'
[Unit]
Description=The report of this system
Requires=basic.target report.service
After=basic.target report.service
AllowIsolate=yes
UNIT
cat > "$units/report.service" <<'UNIT'
[Unit]
Description=Writes the report of this system
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'echo "process 1 is $(cat /proc/1/comm)" > /report'
RemainAfterExit=yes
ExecStop=/bin/sh -c 'echo stopped >> /report'
UNIT
ln -sf /etc/systemd/system/report.target "$units/default.target"
mksquashfs "$work/root" "$work/systemd.sqsh" -quiet -no-progress -comp zstd -Xcompression-level 3 >&2
mv "$work/systemd.sqsh" "$cache/systemd.sqsh"
