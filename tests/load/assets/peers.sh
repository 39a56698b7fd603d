#!/bin/sh
# Unpacks the servers that ours is measured beside: installed, they would serve by themselves, and not beside each other.
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
