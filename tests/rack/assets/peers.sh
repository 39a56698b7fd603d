#!/bin/sh
# Installs sushy-emulator, the BMC emulator. Its libvirt driver uses Debian's python3-libvirt.
#
# usage: peers.sh DIRECTORY
# Does nothing if DIRECTORY is complete. Needs Debian's python3 with venv, python3-libvirt, and a network.
set -eu

peers=$1
mkdir -p "$peers"
peers=$(cd "$peers" && pwd)

# Two racks may run this at the same time.
exec 9>"$peers/rack.lock"
flock 9

# The mark is written last: without it the installation was interrupted, and is repeated.
if [ ! -e "$peers/rack-venv/complete-2" ]; then
    rm -rf "$peers/rack-venv"
    /usr/bin/python3 -m venv "$peers/rack-venv"
    # The only module of the host: it has to match the host's libvirt.
    ln -s /usr/lib/python3/dist-packages/libvirt* "$peers"/rack-venv/lib/python3*/site-packages/
    # Python compiles what it loads, at its first start.
    "$peers/rack-venv/bin/pip" install --quiet --disable-pip-version-check --no-compile sushy-tools==2.2.0
    touch "$peers/rack-venv/complete-2"
fi
