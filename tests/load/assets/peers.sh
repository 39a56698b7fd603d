#!/bin/sh
# Unpacks tftpd-hpa, which cannot be installed beside atftpd.
#
# usage: peers.sh DIRECTORY
# Does nothing where it is there already. Needs apt's lists, and a network.
set -eu

peers=$1
mkdir -p "$peers"
peers=$(cd "$peers" && pwd)

# Two benches may arrive here together.
exec 9>"$peers/load.lock"
flock 9

# Moved there last: what was interrupted is made anew.
if [ ! -e "$peers/tftpd-hpa" ]; then
    rm -rf "$peers/tftpd-hpa.new"
    mkdir "$peers/tftpd-hpa.new"
    cd "$peers/tftpd-hpa.new"
    apt-get download --quiet -o APT::Sandbox::User=root tftpd-hpa
    dpkg-deb --extract tftpd-hpa_*.deb .
    mv "$peers/tftpd-hpa.new" "$peers/tftpd-hpa"
fi
