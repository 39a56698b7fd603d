#!/bin/sh
# Runs a Ceph cluster of one monitor and one object store, with a pool of two images, one of them with a snapshot.
# usage: ceph.sh ADDRESS FOLDER POOL USER IMAGE FILE SNAPSHOT-IMAGE FILE SNAPSHOT
# Writes the secret of the client USER to FOLDER/secret, and prints "Ceph is ready" last.
set -eu
address=$1 folder=$2 pool=$3 user=$4
shift 4
. "$(dirname "$0")/cluster.sh"
ceph osd pool create "$pool" 8 8
ceph osd pool application enable "$pool" rbd
rbd import --no-progress --image-feature layering "$2" "$pool/$1"
rbd import --no-progress --image-feature layering "$4" "$pool/$3"
rbd snap create "$pool/$3@$5"
ceph auth get-or-create "client.$user" mon 'profile rbd' osd "profile rbd pool=$pool" > /dev/null
ceph auth get-key "client.$user" > "$folder/secret"
echo "Ceph is ready"
wait
