#!/bin/sh
# Configures the network. udhcpc runs this at each event, with the event in $1 and the DHCP options in variables.

case $1 in
deconfig)
  ip -4 addr flush dev "$interface"
  ip link set "$interface" up
  ;;
bound | renew)
  [ -z "$mtu" ] || ip link set "$interface" mtu "$mtu"
  ip addr replace "$ip/${mask:-32}" broadcast + dev "$interface"
  # Several routers are in order of preference (RFC 2132, section 3.5): the first is used.
  [ -z "$router" ] || ip route replace default via "${router%% *}" dev "$interface"
  {
    [ -z "$domain" ] || echo "search $domain"
    for server in $dns; do echo "nameserver $server"; done
  } >/etc/resolv.conf.new
  mv /etc/resolv.conf.new /etc/resolv.conf # atomically
  [ -z "$hostname" ] || hostname "$hostname"
  [ "$1" = renew ] ||
    echo "osie: $interface has $ip/$mask, router ${router:-none}, name servers ${dns:-none}" >/dev/console
  ;;
esac
