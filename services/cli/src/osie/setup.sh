# Functions of the machine's first program, in all flavours. A step that fails prints the reason; then the next step follows, or it is
# tried again. Each step prints one line on the console.

export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

say() {
  echo "osie: $*"
}

# Installs busybox's commands, and mounts the kernel's file systems.
base() {
  /bin/busybox --install -s
  mount -t proc proc /proc
  mount -t sysfs sys /sys
  mount -t devtmpfs dev /dev
  # Only now /dev/console is the last console on the kernel's command line.
  exec </dev/console >/dev/console 2>&1
  mkdir -p /dev/pts /dev/shm
  mount -t devpts devpts /dev/pts
  mount -t tmpfs shm /dev/shm
  mount -t tmpfs run /run
  mount -t tmpfs -o mode=1777 tmp /tmp
  ln -sf /proc/self/fd /dev/fd
  ip link set lo up
}

# Prints the value of $1 on the kernel's command line; the last one counts.
argument() (
  set -f
  value=
  for word in $(cat /proc/cmdline); do
    case $word in "$1="*) value=${word#*=} ;; esac
  done
  echo "$value"
)

# Loads the modules for all devices. A driver may find more devices, on a bus of its own: repeated until nothing is new.
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
    modprobe "$module" || say "cannot load $module: continuing without it"
  done </etc/modules
  [ ! -d /sys/firmware/efi/efivars ] || mount -t efivarfs efivarfs /sys/firmware/efi/efivars
  # On a machine without a hardware source of random numbers they are ready only after somebody waits by a read; poll(2) on the file, by which
  # programs wait, too, does not make the kernel collect any (random(4), drivers/char/random.c).
  dd if=/dev/random of=/dev/null bs=1 count=1 2>/dev/null
  say "kernel $(uname -r), $(wc -l </proc/modules) modules"
}

# Requests an address once, on the interface with the MAC $1: names of interfaces depend on the order of detection.
# Without a MAC every interface is tried. udhcpc stays in the background, and renews the lease.
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
    say "requesting an address on $name, $own"
    udhcpc -n -t 4 -T 3 -O mtu -i "$name" -s /etc/udhcpc.sh >/dev/null 2>&1 && return
  done
  [ "$tried" ] || say "no interface has hw_addr=$1; there are:${others:- none}"
  return 1
}

# Sets $name to the interface of VLAN $2 on interface $1, which is created if missing.
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
  # Only an interface that is up says if it has a link: the worker reports it.
  for device in /sys/class/net/*/device; do
    link=${device%/device}
    [ ! -e "$device" ] || ip link set "${link##*/}" up
  done
}
