#!/bin/sh
# Fetches the BMCs that the tests drive: sushy-emulator and virtualbmc, with the Python that runs them.
#
# usage: peers.sh DIRECTORY
# Does nothing where DIRECTORY is complete already. Needs Debian's python3 with venv, python3-libvirt, and a network.
set -eu

peers=$1
mkdir -p "$peers"
peers=$(cd "$peers" && pwd)

# Two test runs may arrive here together.
exec 9>"$peers/power.lock"
flock 9

# The mark is written last: an environment without it was interrupted, and is made anew.
if [ ! -e "$peers/power-venv/complete-3" ]; then
    rm -rf "$peers/power-venv"
    /usr/bin/python3 -m venv "$peers/power-venv"
    # The only module of the host, which virtualbmc requires: it has to match the host's libvirt.
    ln -s /usr/lib/python3/dist-packages/libvirt* "$peers"/power-venv/lib/python3*/site-packages/
    "$peers/power-venv/bin/pip" install --quiet --disable-pip-version-check sushy-tools==2.2.0 bcrypt==5.0.0 virtualbmc==3.3.0
    touch "$peers/power-venv/complete-3"
fi
