#!/bin/sh
# Makes a disk image of a root file system, without mounts or other privileges.
# usage: disk.sh ROOT OUTPUT     writes debian.raw.zst and debian.raw.zst.sha256 to OUTPUT
#
# The first partition (FAT) has the loader and the kernel, for which syslinux needs no mount; the second (ext4) is the root.
set -eu
root=$1 output=$2
boot=64 size=1000 # MiB
mkdir -p "$output"
work=$(mktemp -d "$output/work.XXXXXX")
trap 'rm -rf "$work"' EXIT

mkdir "$work/root"
tar -C "$root" --exclude=./proc/\* --exclude=./sys/\* --exclude=./dev/\* --exclude=./usr/share/doc/\* --exclude=./usr/share/man/\* \
    --exclude=./usr/share/locale/\* --exclude=./var/cache/apt/\* --exclude=./var/lib/apt/lists/\* -cf - . | tar -C "$work/root" -xf -
cd "$work"
echo node > root/etc/hostname
: > root/etc/resolv.conf
printf '127.0.0.1 localhost\n' > root/etc/hosts
echo 'LABEL=root / ext4 defaults,noatime 0 1' > root/etc/fstab
rm -f root/etc/ssh/ssh_host_* root/.dockerenv
: > root/etc/machine-id
cat > root/etc/cloud/cloud.cfg.d/90_lab.cfg <<'CFG'
datasource_list: [ Ec2 ]
datasource: {Ec2: {strict_id: false, max_wait: 120, timeout: 10}}
cloud_init_modules: [seed_random, write-files, set_hostname, users-groups, ssh]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts-user, phone-home, power-state-change]
ssh_genkeytypes: [ed25519]
CFG
echo 'policy: enabled' > root/etc/cloud/ds-identify.cfg
kernel=$(basename root/boot/vmlinuz-* | sed s/vmlinuz-//)

truncate -s ${boot}M boot.img
mkfs.vfat -n BOOT boot.img > /dev/null
mcopy -i boot.img "root/boot/vmlinuz-$kernel" ::/vmlinuz
mcopy -i boot.img "root/boot/initrd.img-$kernel" ::/initrd.img
cat > syslinux.cfg <<'CFG'
serial 0 115200
default l
timeout 1
label l
 kernel /vmlinuz
 append initrd=/initrd.img root=LABEL=root ro console=tty0 console=ttyS0 net.ifnames=0 mitigations=off
CFG
mcopy -i boot.img syslinux.cfg ::/syslinux.cfg
syslinux --install boot.img

truncate -s ${size}M root.img
mkfs.ext4 -q -L root -m 0 -d root root.img
truncate -s $((boot + size + 1))M debian.raw
printf 'label: dos\nstart=2048, size=%s, type=c, bootable\nsize=%s, type=83\n' $((boot * 2048)) $((size * 2048)) | sfdisk -q debian.raw
dd if=/usr/lib/SYSLINUX/mbr.bin of=debian.raw conv=notrunc bs=440 count=1 status=none
dd if=boot.img of=debian.raw bs=1M seek=1 conv=notrunc,sparse status=none
dd if=root.img of=debian.raw bs=1M seek=$((boot + 1)) conv=notrunc,sparse status=none
zstd -q -3 -T0 debian.raw -o ../debian.raw.zst
cd ..
sha256sum debian.raw.zst | cut -d' ' -f1 > debian.raw.zst.sha256
chmod -R a+rX .
