#!/bin/sh
# The system of an outside platform, as small as one can be: nothing of it is installed. It configures its network by DHCP, reads who it is
# from the metadata service, writes to all disks, and prints one line on the console. It takes the place of /init in our own environment.

export PATH=/usr/sbin:/usr/bin:/sbin:/bin
/bin/busybox --install -s
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
exec </dev/console >/dev/console 2>&1
ip link set lo up

# A driver may find more devices, on a bus of its own.
for pass in 1 2 3; do
  cat /sys/bus/*/devices/*/modalias 2>/dev/null | sort -u | xargs -r modprobe -qa
done
while read -r module; do modprobe "$module"; done </etc/modules

until udhcpc -n -t 4 -T 3 -i eth0 -s /etc/udhcpc.sh >/dev/null 2>&1; do
  echo "PLATFORM waits for an address"
  sleep 2
done
until id=$(wget -qO- http://169.254.169.254/2009-04-04/meta-data/instance-id); do
  echo "PLATFORM waits for its metadata"
  sleep 2
done
host=$(wget -qO- http://169.254.169.254/2009-04-04/meta-data/hostname)

# The data of the platform has to be erased when the machine is given back.
for disk in /dev/vda /dev/sda; do
  yes PLATFORM | dd of="$disk" bs=1M count=4 iflag=fullblock 2>/dev/null || echo "PLATFORM cannot write to $disk"
done
sync

ip=$(ip -4 -o addr show dev eth0 | awk '{print $4}')
uuid=$(cat /sys/class/dmi/id/product_uuid)
boot=$(cat /proc/sys/kernel/random/boot_id)
echo "PLATFORM runs id=$id host=$host ip=$ip uuid=$uuid boot=$boot"
while :; do sleep 3600; done
