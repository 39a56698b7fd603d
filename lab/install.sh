#!/bin/sh
# Installs Debian packages into an image that lacks one of them. `cargo rack lab` makes base images that have all.
# usage: install.sh PACKAGE...
set -eu
missing=
for package; do
    state=$(dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null || true)
    [ "$state" = "install ok installed" ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
# shellcheck disable=SC2086 # a list of names
apt-get -qq install --yes --no-install-recommends $missing
rm -rf /var/lib/apt/lists/*
