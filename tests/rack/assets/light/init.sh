#!/bin/sh
# An installed system in place of Debian, where a test is about the installation: it starts in a
# tenth of the processor time. It reads its metadata, counts its boots on its disk, prints what it
# found on the console, and phones home, as Debian does by cloud-init. It is /init in a copy of our
# own environment, and has its kernel.

. /etc/setup.sh
base
hardware
network

metadata() {
  wget -qO- "http://169.254.169.254/2009-04-04/$1"
}

until id=$(metadata meta-data/instance-id) && [ "$id" ]; do
  echo "LIGHT waits for its metadata"
  sleep 2
done
host=$(metadata meta-data/hostname)
key=$(metadata meta-data/public-keys/0/openssh-key)
file=$(metadata user-data | grep -o 'user data arrived' | tr ' ' -)
ip=$(ip -4 -o addr show scope global | awk '{print $4}')

root=$(findfs LABEL=root) && mkdir -p /mnt && mount "$root" /mnt
echo boot >>/mnt/boots
boots=$(wc -l </mnt/boots)
umount /mnt

echo "RACK id=$id host=$host file=$file ip=${ip%/*} key=${key##* } boots=$boots"
until wget -qO- --post-data "instance_id=$id&hostname=$host" http://169.254.169.254/phone-home >/dev/null; do
  echo "LIGHT phones home again"
  sleep 2
done
echo "light login:"
while :; do sleep 3600; done
