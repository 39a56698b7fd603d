# docs/air-gap.md: the archive of one site is imported into another one, which begins empty.
cp docs/examples/*.yaml docs/examples/user-data .
mkdir -p /var/lib/tinwright/osie /srv/ipxe
echo kernel > /var/lib/tinwright/osie/vmlinuz-x86_64
echo initramfs > /var/lib/tinwright/osie/initramfs-x86_64
tinwright serve --netboot-interface eth1 --metadata-link-local eth1
# A disk with a boot sector.
{ head -c 446 /dev/zero | tr '\0' Z; head -c 64 /dev/zero; printf '\125\252'; head -c 1048064 /dev/zero; } > disk.raw
tinwright image upload disk.raw --name debian-12-november --family debian-12
tinwright template create -f debian.yaml
tinwright hardware create -f node-1.yaml
# A key without a password.
block docs/air-gap.md Export 's/minisign -G/& -W/'
stop_server

mv /var/lib/tinwright /var/lib/former
tinwright serve --netboot-interface eth1 --metadata-link-local eth1 --loaders /srv/ipxe
block docs/air-gap.md Import | tee first
grep -x 'image/debian-12-november created' first
grep -x 'hardware/node-1 created' first
grep -x 'osie/vmlinuz-x86_64 created' first
diff -r /var/lib/former/osie /var/lib/tinwright/osie
cmp /usr/lib/ipxe/snponly.efi /srv/ipxe/snponly.efi
. "$BLOCKS/docs/air-gap.md/Import.commands" > second
[ "$(grep -c unchanged second)" = "$(grep -c 'created$' first)" ]
block docs/air-gap.md 'The file'
tinwright instance plan --hardware node-1 --image debian-12 --no-power-management
stop_server
