#!/bin/sh
# Installs moto, an S3 server, with the Python that runs it.
#
# usage: peers.sh DIRECTORY
# Does nothing if DIRECTORY is complete. Needs Debian's python3 with venv, and a network.
set -eu

peers=$1
mkdir -p "$peers"
peers=$(cd "$peers" && pwd)

# Two test runs may do this at the same time.
exec 9>"$peers/image.lock"
flock 9

# The mark is written last: an environment without it is incomplete, and is created again.
if [ ! -e "$peers/image-venv/complete" ]; then
    rm -rf "$peers/image-venv"
    /usr/bin/python3 -m venv "$peers/image-venv"
    # The server needs Flask. What the extra 'server' adds besides is for services other than S3.
    # Python compiles what it loads, at its first start.
    "$peers/image-venv/bin/pip" install --quiet --disable-pip-version-check --no-compile \
        'moto[s3]==5.2.5' flask==3.1.3 flask-cors==6.0.5
    touch "$peers/image-venv/complete"
fi
