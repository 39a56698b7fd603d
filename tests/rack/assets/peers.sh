#!/bin/sh
# Installs sushy-emulator, the BMC emulator, with its libvirt driver.
#
# usage: peers.sh DIRECTORY
# Does nothing if DIRECTORY is complete. Needs python3 with venv and headers, a C compiler, pkg-config, libvirt-dev,
# and a network.
set -eu

peers=$1
mkdir -p "$peers"
peers=$(cd "$peers" && pwd)

# Two racks may run this at the same time.
exec 9>"$peers/rack.lock"
flock 9

# The mark is written last: without it the installation was interrupted, and is repeated.
if [ ! -e "$peers/rack-venv/complete" ]; then
    rm -rf "$peers/rack-venv"
    python3 -m venv "$peers/rack-venv"
    "$peers/rack-venv/bin/pip" install --quiet --disable-pip-version-check setuptools==80.9.0 wheel==0.45.1
    # Newer versions of libvirt-python need a newer libvirt than Debian 12 has.
    "$peers/rack-venv/bin/pip" install --quiet --disable-pip-version-check --no-build-isolation libvirt-python==9.0.0
    "$peers/rack-venv/bin/pip" install --quiet --disable-pip-version-check sushy-tools==2.2.0
    touch "$peers/rack-venv/complete"
fi
