#!/bin/sh
# Fetches the BMCs that the tests drive: sushy-emulator and virtualbmc, with the Python that runs them.
#
# usage: peers.sh DIRECTORY
# Does nothing where DIRECTORY is complete already. Needs python3 with venv, a C compiler, pkg-config, libvirt-dev, and a
# network.
set -eu

peers=$1
mkdir -p "$peers"
peers=$(cd "$peers" && pwd)

# Two test runs may arrive here together.
exec 9>"$peers/power.lock"
flock 9

# The mark is written last: an environment without it was interrupted, and is made anew.
if [ ! -e "$peers/power-venv/complete-2" ]; then
    rm -rf "$peers/power-venv"
    python3 -m venv "$peers/power-venv"
    "$peers/power-venv/bin/pip" install --quiet --disable-pip-version-check sushy-tools==2.2.0 bcrypt==5.0.0 virtualbmc==3.3.0
    touch "$peers/power-venv/complete-2"
fi
