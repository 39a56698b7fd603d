# Functions for scripts that build disk images. They use the folder $work, and clean up at the end of the script.

loop=
clean() {
    mountpoint -q "$work/mount" && umount "$work/mount"
    [ -z "$loop" ] || losetup -d "$loop"
    rm -rf "$work"
}
trap clean EXIT

# Makes an ext4 with the label root at an offset, in sectors, of a size in MiB, and mounts it at $work/mount.
mount_new() { # image offset size
    loop=$(losetup -f --show -o $(($2 * 512)) --sizelimit $(($3 * 1048576)) "$1")
    mkfs.ext4 -q -L root -O ^64bit,^metadata_csum -m 0 "$loop"
    mkdir -p "$work/mount"
    mount "$loop" "$work/mount"
}

unmount() {
    umount "$work/mount"
    losetup -d "$loop"
    loop=
}

# Makes the mounted file system the one that a BIOS boots, with kernel and initramfs on it.
make_bootable() { # image kernel initramfs options
    mkdir -p "$work/mount/boot/extlinux"
    cat > "$work/mount/boot/extlinux/extlinux.conf" <<CFG
serial 0 115200
default l
timeout 1
label l
 kernel $2
 append initrd=$3 $4
CFG
    extlinux --install "$work/mount/boot/extlinux" 2>/dev/null
    dd if=/usr/lib/EXTLINUX/mbr.bin of="$1" conv=notrunc bs=440 count=1 status=none
}

# Makes an EFI system partition that boots the kernel, in the file $work/esp. The kernel of the host need not have vfat.
make_esp() { # size label kernel initramfs options
    truncate -s "$1M" "$work/esp"
    mkfs.vfat -F 32 -n "$2" "$work/esp" > /dev/null
    mmd -i "$work/esp" ::/EFI ::/EFI/BOOT ::/loader ::/loader/entries
    mcopy -i "$work/esp" /usr/lib/systemd/boot/efi/systemd-bootx64.efi ::/EFI/BOOT/BOOTX64.EFI
    mcopy -i "$work/esp" "$3" ::/vmlinuz
    mcopy -i "$work/esp" "$4" ::/initrd.img
    echo 'timeout 0' > "$work/loader.conf"
    printf 'title Linux\nlinux /vmlinuz\ninitrd /initrd.img\noptions %s\n' "$5" > "$work/l.conf"
    mcopy -i "$work/esp" "$work/loader.conf" ::/loader/loader.conf
    mcopy -i "$work/esp" "$work/l.conf" ::/loader/entries/l.conf
}

# Compresses the image to a file of the cache, and writes its SHA-256 and size beside it.
pack() { # image name
    zstd -q -3 -T1 "$1" -o "$work/packed"
    mv "$work/packed" "$cache/$2.zst"
    # Several times as fast as sha256sum.
    echo "$(openssl dgst -sha256 -r "$1" | cut -d' ' -f1) $(stat -c %s "$1")" > "$work/sum"
    rm "$1"
    mv "$work/sum" "$cache/$2.zst.sha256"
}
