# docs/start.md, with an emulated BMC and without a machine: BMC is its URL, USER and PASSWORD are its login.
#
# The first screen of the README, in the rack, is the same with a machine that boots.
echo "$PASSWORD" > pw
block docs/start.md '3. Start the server' 's/ &$//'
block docs/start.md '5. Describe the machine'
block docs/start.md '6. Add its BMC' "s,https://198.51.100.2 --username admin,$BMC --system node0 --username $USER --password-file pw,"
# In place of the publisher's image, which is not reached: a disk with a boot sector.
{ head -c 446 /dev/zero | tr '\0' Z; head -c 64 /dev/zero; printf '\125\252'; head -c 1048064 /dev/zero; } > disk.raw
tinwright image upload disk.raw --name debian-12-lab --family debian-12
block docs/start.md '7. Install' 's/ --wait//'
block docs/start.md '7. Install (2)'
# No machine is there to be wiped.
block docs/start.md '9. Give the machine back' 's/--yes/--yes --force/'
