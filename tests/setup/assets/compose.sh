#!/bin/sh
# Downloads Docker's compose 2 of Debian 13, which runs on Debian 12 too: that has version 1 only.
# usage: compose.sh CACHE     writes CACHE/docker-compose
set -eu
cache=$1
mkdir -p "$cache"
[ ! -e "$cache/docker-compose" ] || exit 0
echo "cargo rack: downloading compose 2" >&2
work=$(mktemp -d "$cache/compose.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
: > "$work/status"
echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main' > "$work/sources"
# A configuration of its own: the host's apt learns nothing of Debian 13. As root, because apt's user has no access to the folder.
apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/sources" -o Dir::Etc::sourceparts=/dev/null -o Dir::State::lists="$work/lists" \
        -o Dir::Cache="$work/cache" -o Dir::State::status="$work/status" -o APT::Sandbox::User=root "$@"
}
apt update
cd "$work"
apt download docker-compose
dpkg-deb --extract docker-compose_*.deb files
mv files/usr/libexec/docker/cli-plugins/docker-compose "$cache/docker-compose"
