#!/bin/sh
# Builds the disk images of a small system, one for BIOS and one for UEFI, unless those in the cache are of this environment.
# usage: image.sh CACHE OSIE    OSIE is the folder of the environment
# Writes light-bios.raw.zst and light-efi.raw.zst to CACHE, and for each a file with SHA-256 and size of the uncompressed image. The root file system of the
# system for UEFI is the EFI system partition.
set -eu
cache=$(cd "$1" && pwd) kernel=$2/vmlinuz-x86_64 environment=$2/initramfs-x86_64
here=${0%/*}
exec 9>"$cache/light.lock"
flock 9
contents=$(openssl dgst -sha256 -r "$0" "$here/init.sh" "$here/../disk-image.sh" "$kernel" "$environment")
[ "$(cat "$cache/light.contents" 2>/dev/null)" != "$contents" ] || exit 0
rm -f "$cache/light.contents"

work=$(mktemp -d "$cache/light.XXXXXX")
. "$here/../disk-image.sh"
options="root=LABEL=root console=tty0 console=ttyS0 mitigations=off"
size=48

# The kernel unpacks archives one after another, each at a multiple of four bytes: a later file replaces an earlier one.
initramfs=$work/initramfs
cp "$environment" "$initramfs"
truncate -s %4 "$initramfs"
mkdir "$work/root"
install -m 755 "$here/init.sh" "$work/root/init"
(cd "$work/root" && echo init | cpio --create --format=newc --quiet --owner=0:0) >> "$initramfs"

truncate -s $((size + 1))M "$work/bios.raw"
printf 'label: dos\nstart=2048, size=%s, type=83, bootable\n' $((size * 2048)) | sfdisk -q "$work/bios.raw"
mount_new "$work/bios.raw" 2048 $size
cp "$kernel" "$work/mount/vmlinuz"
cp "$initramfs" "$work/mount/initrd.img"
make_bootable "$work/bios.raw" /vmlinuz /initrd.img "$options"
unmount
pack "$work/bios.raw" light-bios.raw

truncate -s $((size + 2))M "$work/efi.raw"
printf 'label: gpt\nstart=2048, size=%s, type=U\n' $((size * 2048)) | sfdisk -q "$work/efi.raw"
make_esp $size root "$kernel" "$initramfs" "$options"
dd if="$work/esp" of="$work/efi.raw" bs=1M seek=1 conv=notrunc,sparse status=none
pack "$work/efi.raw" light-efi.raw
echo "$contents" > "$cache/light.contents"
