#!/bin/sh
# The init of a node: sets up hardware and network, then runs iscsid and the node agent, and restarts them whenever they end.
# Containers run on meanwhile.
#
# It must not end, or the kernel panics. Parameters on the kernel's command line:
#   ip=…                     a static address instead of DHCP (the kernel's admin-guide/nfs/nfsroot.rst)
#   hw_addr=… vlan_id=…      the interface and its VLAN, as in the install flavour
#   tinwright.node.NAME=…    the agent's flag --NAME=…, for one that takes no value without the equals sign
#   debug_shell=DEVICE       a shell for root on this terminal, such as ttyS1, without a password
#   rescue=1                 a shell on the console instead of the agent

. /etc/setup.sh

# Containers need control groups of version 2.
control_groups() {
  mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
}

# Configures the address in the parameter ip, CLIENT:SERVER:GATEWAY:NETMASK:HOST:DEVICE:AUTOCONF:DNS:DNS. Fails if there is none.
static_network() {
  IFS=: read -r client server gateway netmask host device autoconf dns <<END
$(argument ip)
END
  case $client in *.*) ;; *) return 1 ;; esac
  name=$(static_interface "$device" "$(argument hw_addr | tr A-Z a-z)")
  [ "$name" ] || { say "there is no interface for ip=$client" && return 1; }
  ip link set "$name" up
  ip addr add "$client/${netmask:-32}" broadcast + dev "$name"
  [ -z "$gateway" ] || ip route add default via "$gateway" dev "$name"
  [ -z "$host" ] || hostname "$host"
  for server in $(echo "$dns" | tr : ' '); do echo "nameserver $server"; done >/etc/resolv.conf
  say "$name has $client/${netmask:-32}, router ${gateway:-none}, name servers ${dns:-none}"
}

# Prints the first interface with name $1 and MAC $2, each of which may be empty.
static_interface() {
  for device in /sys/class/net/*/device; do
    link=${device%/device}
    [ -e "$device" ] && [ "${1:-${link##*/}}" = "${link##*/}" ] || continue
    own=$(cat "$link/address")
    [ "${2:-$own}" = "$own" ] && echo "${link##*/}" && return
  done
}

# Prints the agent's flags. Clients on the node itself are always served, and the control plane whose boot script started this system.
agent_flags() (
  set -f
  echo --scheme=unix
  [ -z "$(argument boot_token)" ] || echo --cmdline=/proc/cmdline
  for word in $(cat /proc/cmdline); do
    case $word in tinwright.node.*) echo "--${word#tinwright.node.}" ;; esac
  done
)

# Runs a program, and restarts it whenever it ends. Each has a process group of its own: iscsid ends all of its group when it ends.
supervise() {
  while :; do
    say "starting ${1##*/}"
    setsid "$@"
    say "${1##*/} ended with exit code $?: starting it again in 1 s"
    sleep 1
  done
}

base
control_groups
hardware
static_network || network
shell=$(argument debug_shell)
[ -z "$shell" ] || while :; do setsid sh -c "exec sh <>/dev/$shell >&0 2>&1"; sleep 1; done &
while [ "$(argument rescue)" = 1 ]; do
  setsid -c sh
done
mkdir -p /run/lock/iscsi
supervise iscsid -f &
set -f
supervise /bin/tinwright-node $(agent_flags)
