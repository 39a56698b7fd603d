#!/bin/sh
# Makes a root file system of Debian with packages, for images where no registry is reachable.
# usage: base.sh CACHE NAME PACKAGE...     writes CACHE/NAME.tar
set -eu
cache=$1 name=$2
shift 2
mkdir -p "$cache"
[ ! -e "$cache/$name.tar" ] || exit 0
work=$(mktemp -d "$cache/base.XXXXXX")
trap 'rm -rf "$work"' EXIT
echo "cargo rack: building $name, a Debian base (takes a minute, once)" >&2
packages=$(IFS=,; echo "$*")
# Data that dpkg has not synced may be lost if the host ends: the work folder is removed then.
mmdebstrap --quiet --variant=minbase --include="$packages" --aptopt='Acquire::Languages "none"' \
    --dpkgopt=force-unsafe-io bookworm "$work/root.tar" >&2
mv "$work/root.tar" "$cache/$name.tar"
