#!/bin/sh
# A machine without a system: QEMU without hardware acceleration, and a BMC that switches it on and off.
#
# The container's network interface becomes a port of a bridge, so frames of the virtual machine leave by it with the machine's own MAC.
# The BMC has the address that Docker gave to the container. The user's only capability is that of `with-net-admin`.
set -eu
: "${MACHINE_MAC:?}" "${MACHINE_UUID:?}" "${MACHINE_MEMORY:=1280}" "${MACHINE_DISK:=2G}" "${BMC_USER:?}" "${BMC_PASSWORD_FILE:?}"
state=/run/machine
disk=/var/lib/machine/disk.raw
qemu=

network() {
    with-net-admin --inh-caps=+net_admin --ambient-caps=+net_admin ip "$@"
}

prepare_network() {
    address=$(ip -4 -oneline address show dev eth0 | awk '{print $4}')
    network link add br0 type bridge stp_state 0 forward_delay 0
    network address flush dev eth0
    network link set eth0 master br0
    network address add "$address" dev br0
    network link set br0 up
    network tuntap add tap0 mode tap user "$(id -u)"
    network link set tap0 master br0 up
}

start_bmc() {
    mkdir -p "$state/ipmi"
    # The password of a BMC has at most 20 characters, and here no space.
    password=$(cat "$BMC_PASSWORD_FILE")
    (
        umask 077
        cat > "$state/lan.conf" <<CONF
name "bmc"
set_working_mc 0x20
startlan 1
  addr 0.0.0.0 623
  priv_limit admin
  allowed_auths_admin none md2 md5 straight
  guid 00000000000000000000000000000000
endlan
chassis_control "/usr/local/bin/chassis.sh 0x20"
user 2 true "$BMC_USER" "$password" admin 10 none md2 md5 straight
CONF
    )
    printf '%s\n' 'mc_setbmc 0x20' 'mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr' 'mc_enable 0x20' > "$state/bmc.emu"
    ipmi_sim -c "$state/lan.conf" -f "$state/bmc.emu" -s "$state/ipmi" -n > /dev/null &
    bmc=$!
}

# The disk is the second choice of every boot: a machine that is refused the network boots what is installed.
start_qemu() {
    network=1 local_disk=2
    if [ "$(cat "$state/boot")" = disk ]; then network=2 local_disk=1; fi
    # A boot device that was set over IPMI is for one boot.
    echo default > "$state/boot"
    qemu-system-x86_64 -accel tcg,thread=single -machine pc,graphics=off -m "$MACHINE_MEMORY" -uuid "$MACHINE_UUID" \
        -nodefaults -display none -serial stdio -boot strict=on -device virtio-rng-pci \
        -drive "file=$disk,format=raw,if=none,id=disk,cache=unsafe,discard=unmap" -device "virtio-blk-pci,drive=disk,bootindex=$local_disk" \
        -netdev tap,id=net,ifname=tap0,script=no,downscript=no -device "virtio-net-pci,netdev=net,mac=$MACHINE_MAC,bootindex=$network" \
        < /dev/null &
    qemu=$!
}

stop_qemu() {
    [ -n "$qemu" ] || return 0
    kill "$qemu" 2> /dev/null || true
    wait "$qemu" || true
    qemu=
}

stop() {
    stop_qemu
    kill "$bmc" 2> /dev/null || true
    exit 0
}

mkdir -p "$state"
[ -e "$disk" ] || truncate -s "$MACHINE_DISK" "$disk"
echo "${MACHINE_POWER:-0}" > "$state/power"
echo default > "$state/boot"
prepare_network
start_bmc
trap stop TERM INT
touch "$state/ready"
while kill -0 "$bmc" 2> /dev/null; do
    # A system that switched its machine off.
    if [ -n "$qemu" ] && ! kill -0 "$qemu" 2> /dev/null; then
        wait "$qemu" || true
        qemu=
        echo 0 > "$state/power"
    fi
    if [ -e "$state/request" ]; then
        request=$(cat "$state/request")
        rm "$state/request"
        # Systems without an ACPI daemon ignore the button, and this machine's BMC does not wait for them.
        if [ "$request" = shutdown ]; then echo 0 > "$state/power"; fi
        stop_qemu
    fi
    case $(cat "$state/power") in
    1) [ -n "$qemu" ] || start_qemu ;;
    0) stop_qemu ;;
    esac
    sleep 0.2 &
    wait $! || true
done
echo "machine: the BMC ended" >&2
stop_qemu
exit 1
