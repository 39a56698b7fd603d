#!/bin/busybox sh
# The init of the machine of machine.rs. It runs the tests twice: in a group of root's, and in a group of a tree that is
# delegated to the ordinary user, as systemd does it with `Delegate=yes`. Then it ends the machine.
/bin/busybox mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
/bin/busybox mkdir /run/bin
/bin/busybox --install -s /run/bin
export PATH=/usr/bin:/run/bin HOME=/root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t tmpfs -o mode=1777 tmp /tmp
groups=/sys/fs/cgroup
mount -t cgroup2 groups $groups
ip link set lo up
# A line of the kernel would end up inside a line of the tests.
dmesg -n 1
echo "machine: hierarchies:" $(awk '$3 ~ /^cgroup/ { print $3 }' /proc/mounts)

run() {
    echo "machine: begin $1"
    (echo 0 >"$2/cgroup.procs" && exec /tests --test-threads 1)
    echo "machine: end $1: $?"
}

mkdir $groups/tests
run root $groups/tests

mkdir -p $groups/delegated/tests
echo "+memory +pids" >$groups/cgroup.subtree_control
for group in $groups/delegated $groups/delegated/tests; do
    chown 12345:12345 $group $group/cgroup.procs $group/cgroup.subtree_control $group/cgroup.threads
done
export SANDBOX_DELEGATED=yes
run delegated $groups/delegated/tests
echo b >/proc/sysrq-trigger
