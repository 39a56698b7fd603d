# Starts a Ceph cluster of one monitor and one object store. Scripts of tests source it, with `address` and `folder` set.
# It exports CEPH_CONF, the settings of clients. The caller ends the two processes.
uuid() { cat /proc/sys/kernel/random/uuid; }
mkdir "$folder/mon" "$folder/osd" "$folder/log" "$folder/run" "$folder/crash" "$folder/crash/posted"
cluster=$(uuid)
export CEPH_CONF=$folder/ceph.conf
cat > "$CEPH_CONF" <<CONF
[global]
fsid = $cluster
mon host = $address
public addr = $address
cluster addr = $address
keyring = $folder/keyring
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
auth allow insecure global id reclaim = false
run dir = $folder/run
admin socket = $folder/run/\$name.asok
log file = $folder/log/\$name.log
crash dir = $folder/crash
[mon]
mon data = $folder/mon
mon initial members = a
mon data avail warn = 1
mon data avail crit = 1
[osd]
osd data = $folder/osd
osd objectstore = bluestore
bluestore block create = true
bluestore block size = 2147483648
osd memory target = 939524096
osd class update on start = false
CONF
ceph-authtool -C "$folder/keyring" --gen-key -n mon. --cap mon 'allow *'
ceph-authtool "$folder/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' --cap mgr 'allow *'
ceph-authtool "$folder/keyring" --gen-key -n osd.0 --cap mon 'allow profile osd' --cap mgr 'allow profile osd' --cap osd 'allow *'
cp "$folder/keyring" "$folder/osd/keyring"
monmaptool --create --fsid "$cluster" --addv a "[v2:$address:3300,v1:$address:6789]" "$folder/monmap"
ceph-mon --mkfs -i a --monmap "$folder/monmap" --keyring "$folder/keyring"
ceph-mon -i a -f &
store=$(uuid)
ceph osd new "$store" 0
ceph-osd -i 0 --mkfs --osd-uuid "$store"
ceph osd crush add osd.0 1.0 root=default
ceph-osd -i 0 -f &
