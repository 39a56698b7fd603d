#!/bin/sh
# Downloads and unpacks the servers that ours is compared with. They are not installed: as Debian services they would start
# by themselves, and exclude each other.
#
# usage: peers.sh DIRECTORY
# Does nothing if they were unpacked before. Needs apt's package lists and a network.
set -eu

peers=$1
mkdir -p "$peers"
peers=$(cd "$peers" && pwd)

# Two benches may run this at the same time.
exec 9>"$peers/load.lock"
flock 9

# The directory is moved into place last, so an interrupted run is repeated.
if [ ! -e "$peers/servers" ]; then
    rm -rf "$peers/servers.new"
    mkdir "$peers/servers.new"
    cd "$peers/servers.new"
    apt-get download --quiet -o APT::Sandbox::User=root atftpd nginx tftpd-hpa
    for package in *.deb; do
        dpkg-deb --extract "$package" .
    done
    mv "$peers/servers.new" "$peers/servers"
fi
