#!/bin/sh
# Downloads the clients of tests/clients.rs: cloud-init's library and botocore, with a Python environment to run them.
#
# usage: peers.sh DIRECTORY
# Does nothing if DIRECTORY is complete. Needs apt (Debian 12), python3 with venv, and a network.
set -eu

peers=$1
mkdir -p "$peers"
peers=$(cd "$peers" && pwd)

# Two test runs may do this at the same time.
exec 9>"$peers/metadata.lock"
flock 9

if [ ! -e "$peers/cloud-init/usr/lib/python3/dist-packages/cloudinit/version.py" ]; then
    packages=$(mktemp -d "$peers/deb.XXXXXX")
    # apt downloads as an unprivileged user, who cannot write here.
    (cd "$packages" && apt-get -o APT::Sandbox::User=root -qq download cloud-init)
    dpkg-deb --extract "$packages"/cloud-init_*.deb "$packages/root"
    rm -rf "$peers/cloud-init"
    mv "$packages/root" "$peers/cloud-init"
    rm -rf "$packages"
fi

# The mark is written last: an environment without it is incomplete, and is created again.
if [ ! -e "$peers/metadata-venv/complete" ]; then
    rm -rf "$peers/metadata-venv"
    python3 -m venv "$peers/metadata-venv"
    # Python compiles what it loads, at its first start.
    "$peers/metadata-venv/bin/pip" install --quiet --disable-pip-version-check --no-compile \
        pyyaml==6.0.3 requests==2.34.2 oauthlib==4.0.1 configobj==5.0.9 jsonpatch==1.47 jsonschema==4.26.0 \
        jinja2==3.1.6 botocore==1.44.5
    touch "$peers/metadata-venv/complete"
fi
