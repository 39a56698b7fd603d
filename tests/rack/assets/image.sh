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
. "${0%/*}/disk-image.sh"

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
mkdir "$work/root"
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
options="root=LABEL=root ro console=tty0 console=ttyS0 net.ifnames=0 mitigations=off apparmor=0 loglevel=6"
# Units that no test needs: a fifth of the processor time of an emulated machine until its login prompt.
for unit in e2scrub_reap.service systemd-binfmt.service systemd-modules-load.service kmod-static-nodes.service \
    modprobe@configfs.service modprobe@dm_mod.service modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service \
    modprobe@loop.service systemd-pstore.service dev-hugepages.mount dev-mqueue.mount sys-fs-fuse-connections.mount \
    sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount systemd-update-utmp.service \
    systemd-update-utmp-runlevel.service systemd-journal-flush.service getty@tty1.service; do
    ln -sf /dev/null "$root/etc/systemd/system/$unit"
done

size=800
truncate -s $((size + 1))M "$work/bios.raw"
printf 'label: dos\nstart=2048, size=%s, type=83, bootable\n' $((size * 2048)) | sfdisk -q "$work/bios.raw"
mount_new "$work/bios.raw" 2048 $size
cp -a "$root/." "$work/mount/"
make_bootable "$work/bios.raw" "/boot/vmlinuz-$kernel" "/boot/initrd.img-$kernel" "$options"
unmount
pack "$work/bios.raw" debian-bios.raw

esp=128
truncate -s $((size + esp + 2))M "$work/efi.raw"
printf 'label: gpt\nefi.raw2 : start=2048, size=%s, type=U\nefi.raw1 : start=%s, size=%s, type=L, name=root\n' \
    $((esp * 2048)) $(((esp + 1) * 2048)) $((size * 2048)) | sfdisk -q "$work/efi.raw"
make_esp $esp ESP "$root/boot/vmlinuz-$kernel" "$root/boot/initrd.img-$kernel" "$options"
dd if="$work/esp" of="$work/efi.raw" bs=1M seek=1 conv=notrunc,sparse status=none
mount_new "$work/efi.raw" $(((esp + 1) * 2048)) $size
cp -a "$root/." "$work/mount/"
unmount
pack "$work/efi.raw" debian-efi.raw
