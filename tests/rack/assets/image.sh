#!/bin/sh
# Builds the disk images that the rack installs: Debian with cloud-init, one for BIOS and one for UEFI.
# usage: image.sh CACHE
# Writes debian-bios.raw.zst and debian-efi.raw.zst to CACHE, and for each a file with SHA-256 and size of the uncompressed image. The root file system
# is partition 1 of both, as in Debian's own images.
#
# The root file system is built once and cached; the images take seconds. The host needs neither a partition parser nor vfat in
# its kernel: partitions are accessed by offset, and the ESP is filled with mtools.
set -eu
cache=$1
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
exec 9>"$cache/image.lock"
flock 9
[ -e "$cache/debian-efi.raw.zst.sha256" ] && [ -e "$cache/debian-bios.raw.zst.sha256" ] && exit 0

work=$(mktemp -d "$cache/image.XXXXXX")
loop=
clean() {
    mountpoint -q "$work/mount" && umount "$work/mount"
    [ -z "$loop" ] || losetup -d "$loop"
    rm -rf "$work"
}
trap clean EXIT

packages=systemd-sysv,udev,dbus,iproute2,isc-dhcp-client,ifupdown,netbase,ca-certificates,openssh-server,cloud-init
packages=$packages,linux-image-cloud-amd64,initramfs-tools,kmod,procps,zstd,e2fsprogs,util-linux,python3
if [ ! -e "$cache/debian-root.tar" ]; then
    echo "rack: building a Debian root file system (takes some minutes, once)" >&2
    # A smaller system and a smaller initramfs are unpacked, written and booted in less time by an emulated processor. Data that dpkg
    # has not synced may be lost if the host ends: the work folder is removed then.
    mmdebstrap --quiet --variant=minbase --include="$packages" \
        --aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io \
        --setup-hook='mkdir -p "$1/etc/initramfs-tools/conf.d" "$1/usr/share/initramfs-tools/modules.d"' \
        --setup-hook='echo MODULES=list > "$1/etc/initramfs-tools/conf.d/rack"' \
        --setup-hook='printf "%s\n" virtio_pci virtio_blk virtio_scsi sd_mod > "$1/usr/share/initramfs-tools/modules.d/rack"' \
        --customize-hook='cd "$1/usr/share" && rm -rf doc/* man/* locale/* i18n/*' \
        --customize-hook='cd "$1"/usr/lib/modules/*/kernel && rm -rf fs/btrfs fs/nfs fs/nfsd fs/smb fs/xfs drivers/net/ethernet' \
        --customize-hook='chroot "$1" depmod "$(ls "$1/usr/lib/modules")"' \
        bookworm "$work/root.tar" >&2
    mv "$work/root.tar" "$cache/debian-root.tar"
fi
mkdir "$work/root" "$work/mount"
tar -C "$work/root" -xf "$cache/debian-root.tar"
root=$work/root
echo node > "$root/etc/hostname"
echo 'LABEL=root / ext4 defaults,noatime 0 1' > "$root/etc/fstab"
rm -f "$root"/etc/ssh/ssh_host_*
: > "$root/etc/machine-id"
# mmdebstrap leaves the host's. cloud-init looks up four names, and waits ten seconds for each if a name server does not answer.
: > "$root/etc/resolv.conf"
cat > "$root/etc/cloud/cloud.cfg.d/90_rack.cfg" <<'CFG'
datasource_list: [ Ec2 ]
datasource: {Ec2: {strict_id: false, max_wait: 120, timeout: 10}}
cloud_init_modules: [seed_random, write-files, set_hostname, users-groups, ssh]
cloud_config_modules: [runcmd]
cloud_final_modules: [scripts-user, phone-home, power-state-change]
ssh_genkeytypes: [ed25519]
CFG
echo 'policy: enabled' > "$root/etc/cloud/ds-identify.cfg"
kernel=$(basename "$root"/boot/vmlinuz-* | sed s/vmlinuz-//)
options="root=LABEL=root ro console=tty0 console=ttyS0 net.ifnames=0 mitigations=off loglevel=6"
options="$options systemd.mask=e2scrub_reap.service systemd.mask=systemd-binfmt.service"

fill() { # image offset size: an ext4 of this size (in MiB) at this offset, with the root in it
    loop=$(losetup -f --show -o $(($2 * 512)) --sizelimit $(($3 * 1048576)) "$1")
    mkfs.ext4 -q -L root -O ^64bit,^metadata_csum -m 0 "$loop"
    mount "$loop" "$work/mount"
    cp -a "$root/." "$work/mount/"
}
done_with() {
    umount "$work/mount"
    losetup -d "$loop"
    loop=
}
pack() { # image name
    zstd -q -3 -T1 "$1" -o "$work/packed"
    mv "$work/packed" "$cache/$2.zst"
    # Several times as fast as sha256sum.
    echo "$(openssl dgst -sha256 -r "$1" | cut -d' ' -f1) $(stat -c %s "$1")" > "$work/sum"
    rm "$1"
    mv "$work/sum" "$cache/$2.zst.sha256"
}

size=800
truncate -s $((size + 1))M "$work/bios.raw"
printf 'label: dos\nstart=2048, size=%s, type=83, bootable\n' $((size * 2048)) | sfdisk -q "$work/bios.raw"
fill "$work/bios.raw" 2048 $size
mkdir -p "$work/mount/boot/extlinux"
cat > "$work/mount/boot/extlinux/extlinux.conf" <<CFG
serial 0 115200
default l
timeout 1
label l
 kernel /boot/vmlinuz-$kernel
 append initrd=/boot/initrd.img-$kernel $options
CFG
extlinux --install "$work/mount/boot/extlinux" 2>/dev/null
done_with
dd if=/usr/lib/EXTLINUX/mbr.bin of="$work/bios.raw" conv=notrunc bs=440 count=1 status=none
pack "$work/bios.raw" debian-bios.raw

esp=128
truncate -s $((size + esp + 2))M "$work/efi.raw"
printf 'label: gpt\nefi.raw2 : start=2048, size=%s, type=U\nefi.raw1 : start=%s, size=%s, type=L, name=root\n' \
    $((esp * 2048)) $(((esp + 1) * 2048)) $((size * 2048)) | sfdisk -q "$work/efi.raw"
truncate -s ${esp}M "$work/esp"
mkfs.vfat -F 32 -n ESP "$work/esp" > /dev/null
mmd -i "$work/esp" ::/EFI ::/EFI/BOOT ::/loader ::/loader/entries
mcopy -i "$work/esp" /usr/lib/systemd/boot/efi/systemd-bootx64.efi ::/EFI/BOOT/BOOTX64.EFI
mcopy -i "$work/esp" "$root/boot/vmlinuz-$kernel" ::/vmlinuz
mcopy -i "$work/esp" "$root/boot/initrd.img-$kernel" ::/initrd.img
echo 'timeout 0' > "$work/loader.conf"
printf 'title Debian\nlinux /vmlinuz\ninitrd /initrd.img\noptions %s\n' "$options" > "$work/l.conf"
mcopy -i "$work/esp" "$work/loader.conf" ::/loader/loader.conf
mcopy -i "$work/esp" "$work/l.conf" ::/loader/entries/l.conf
dd if="$work/esp" of="$work/efi.raw" bs=1M seek=1 conv=notrunc,sparse status=none
fill "$work/efi.raw" $(((esp + 1) * 2048)) $size
done_with
pack "$work/efi.raw" debian-efi.raw
