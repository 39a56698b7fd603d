#!/bin/sh
# Builds disks with a minimal operating system that prints one line and restarts.
# usage: make.sh DIRECTORY       writes bios.raw and uefi.raw to DIRECTORY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "$1"

as --32 -o sector.o "$here/sector.s"
ld -m elf_i386 --oformat binary -Ttext 0x7c00 -e 0x7c00 -o bios.raw sector.o
truncate -s 1M bios.raw

as -o program.o "$here/program.s"
ld -m i386pep --subsystem 10 --image-base 0 -e start -o program.efi program.o
truncate -s 4M uefi.raw
mformat -i uefi.raw ::
mmd -i uefi.raw ::/EFI ::/EFI/BOOT
mcopy -i uefi.raw program.efi ::/EFI/BOOT/BOOTX64.EFI
