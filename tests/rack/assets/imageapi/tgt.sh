#!/bin/sh
# Serves files as logical units 1 of iSCSI targets with tgtd.
# usage: tgt.sh ADDRESS PID-FILE TARGET FILE [TARGET FILE]...
set -eu
address=$1 pid_file=$2
shift 2
# Its control socket has a fixed path.
mount -t tmpfs state /run
mkdir /run/tgtd
tgtd -f --iscsi "portal=$address:3260" &
server=$!
echo $server > "$pid_file"
# It ignores the signal as long as it has targets.
trap 'kill -KILL $server; exit 0' TERM
until tgtadm --mode sys --op show >/dev/null 2>&1; do
    kill -0 $server
    sleep 0.1
done
id=0
while [ $# -gt 0 ]; do
    id=$((id + 1))
    tgtadm --lld iscsi --mode target --op new --tid $id -T "$1"
    tgtadm --lld iscsi --mode logicalunit --op new --tid $id --lun 1 -b "$2"
    tgtadm --lld iscsi --mode target --op bind --tid $id -I ALL
    shift 2
done
echo "targets: $id"
wait $server
