#!/bin/sh
# The machine's first program: finds hardware and network, then runs the worker, for ever.
#
# It must not end, or the kernel stops. So a step that fails says what failed, and the next one goes on or it is tried
# again; one line a step, for whoever looks at the console.

export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

say() {
  echo "osie: $*"
}

# Makes the machine look like a system: busybox's commands, and what the kernel shows as files.
base() {
  /bin/busybox --install -s
  mount -t proc proc /proc
  mount -t sysfs sys /sys
  mount -t devtmpfs dev /dev
  # The kernel knows only now which console is the last on its command line.
  exec </dev/console >/dev/console 2>&1
  mkdir -p /dev/pts /dev/shm
  mount -t devpts devpts /dev/pts
  mount -t tmpfs shm /dev/shm
  mount -t tmpfs run /run
  mount -t tmpfs -o mode=1777 tmp /tmp
  ln -sf /proc/self/fd /dev/fd
  ip link set lo up
}

# The value of $1 on the kernel's command line; the last one counts.
argument() (
  set -f
  value=
  for word in $(cat /proc/cmdline); do
    case $word in "$1="*) value=${word#*=} ;; esac
  done
  echo "$value"
)

# Loads what the devices ask for. A driver may find more devices, on a bus of its own: go on until nothing is new.
coldplug() {
  for pass in 1 2 3 4 5; do
    before=$(wc -l </proc/modules)
    cat /sys/bus/*/devices/*/modalias 2>/dev/null | sort -u | xargs -r modprobe -qa
    [ "$(wc -l </proc/modules)" -gt "$before" ] || break
  done
}

hardware() {
  coldplug
  while read -r module; do
    modprobe "$module" || say "cannot load $module: going on without"
  done </etc/modules
  [ ! -d /sys/firmware/efi/efivars ] || mount -t efivarfs efivarfs /sys/firmware/efi/efivars
  say "kernel $(uname -r), $(wc -l </proc/modules) modules"
}

# One attempt at an address, on the interface with the MAC $1: the kernel numbers interfaces in the order it finds them.
# Without a MAC every interface is tried. udhcpc stays in the background, and renews.
address() {
  tried= others=
  for device in /sys/class/net/*/device; do
    [ -e "$device" ] || continue
    link=${device%/device}
    name=${link##*/} own=$(cat "$link/address")
    [ "$own" = "${1:-$own}" ] || { others="$others $own" && continue; }
    tried=yes
    ip link set "$name" up || continue
    [ -z "$2" ] || tagged "$name" "$2" || continue
    say "asking for an address on $name, $own"
    udhcpc -n -t 4 -T 3 -O mtu -i "$name" -s /etc/udhcpc.sh >/dev/null 2>&1 && return
  done
  [ "$tried" ] || say "no interface has hw_addr=$1; there are:${others:- none}"
  return 1
}

# Makes $name the interface for what is tagged with VLAN $2 on interface $1.
tagged() {
  name=$1.$2
  [ -e "/sys/class/net/$name" ] || ip link add link "$1" name "$name" type vlan id "$2" || return
  ip link set "$name" up
}

network() {
  mac=$(argument hw_addr | tr A-Z a-z) vlan=$(argument vlan_id)
  until address "$mac" "$vlan"; do
    say "no address yet: trying again in 5 s"
    sleep 5
    coldplug
  done
}

# Waits for disks, which may take longer than their drivers, but not for ever: a machine may have none.
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
# A rescue is for people: a shell on the console, and no worker.
while [ "$(argument rescue)" = 1 ]; do
  setsid -c sh
done
while :; do
  say "starting the worker"
  /bin/tinwright-worker
  say "the worker ended with exit code $?: starting it again in 1 s"
  sleep 1
done
