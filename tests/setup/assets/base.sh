#!/bin/sh
# Makes a root file system of Debian with packages, for images where no registry is reachable.
# usage: base.sh CACHE NAME INSTALLER PACKAGE...     writes CACHE/NAME.tar; INSTALLER is lab/install.sh
set -eu
cache=$1 name=$2 installer=$3
shift 3
mkdir -p "$cache"
[ ! -e "$cache/$name.tar" ] || exit 0
work=$(mktemp -d "$cache/base.XXXXXX")
trap 'rm -rf "$work"' EXIT
if [ ! -e "$cache/debian.tar" ]; then
    echo "cargo rack: building a Debian base (takes a minute, once)" >&2
    debootstrap --variant=minbase bookworm "$work/debian" http://deb.debian.org/debian > "$work/log" || { tail -n 20 "$work/log" >&2; exit 1; }
    tar -C "$work/debian" -cf "$work/debian.tar" .
    mv "$work/debian.tar" "$cache/debian.tar"
fi
echo "cargo rack: installing the packages of $name (takes a minute, once)" >&2
mkdir "$work/root"
tar -C "$work/root" -xf "$cache/debian.tar"
cp "$installer" "$work/root/install.sh"
cp /etc/resolv.conf "$work/root/etc/resolv.conf"
# Keeps daemons from starting (invoke-rc.d(8)).
printf '#!/bin/sh\nexit 101\n' > "$work/root/usr/sbin/policy-rc.d"
chmod +x "$work/root/usr/sbin/policy-rc.d"
# Mounts and processes of the installation end with it.
unshare --mount --propagation private --pid --fork --kill-child --mount-proc chroot "$work/root" \
    sh -c 'mount -t proc proc /proc && exec sh /install.sh "$@"' sh "$@" > "$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
rm "$work/root/install.sh" "$work/root/usr/sbin/policy-rc.d"
rm -rf "$work/root/var/cache/apt/archives"/*.deb
tar -C "$work/root" -cf "$work/root.tar" .
mv "$work/root.tar" "$cache/$name.tar"
