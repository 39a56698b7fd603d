#!/bin/busybox sh
# The first program of a node: moves the system from the initial RAM file system to a tmpfs, and goes on there with /etc/node.sh.
#
# pivot_root(2) refuses the initial RAM file system, so that containers could not detach it: their processes would keep the node's
# files below their own root directory.

export PATH=/bin
busybox mkdir /moved
busybox mount -t tmpfs -o mode=755 root /moved
for path in /*; do
  [ "$path" = /moved ] || busybox cp -a "$path" /moved
done
exec busybox switch_root /moved /etc/node.sh
