#!/bin/sh
# The machine's init: sets up hardware and network, then runs the worker, and restarts it whenever it ends.
#
# It must not end, or the kernel panics.

. /etc/setup.sh

# Waits for disks, which may appear after their drivers, at most 10 s: a machine may have none.
disks() {
  for second in 1 2 3 4 5 6 7 8 9 10; do
    listed=
    for disk in /sys/block/*; do
      sectors=$(cat "$disk/size" 2>/dev/null)
      [ "${sectors:-0}" -eq 0 ] || listed="$listed /dev/${disk##*/} ($((sectors / 2048)) MiB)"
    done
    [ "$listed" ] && break
    sleep 1
  done
  say "disks:${listed:- none}"
}

base
hardware
network
disks
# A rescue boot has a shell on the console, and no worker.
while [ "$(argument rescue)" = 1 ]; do
  setsid -c sh
done
while :; do
  say "starting the worker"
  /bin/tinwright-worker --disk-links
  say "the worker ended with exit code $?: starting it again in 1 s"
  sleep 1
done
