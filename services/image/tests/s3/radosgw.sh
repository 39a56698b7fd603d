#!/bin/sh
# Runs radosgw, Ceph's S3 server, with a cluster of its own, on port 7480 of ADDRESS.
# usage: radosgw.sh ADDRESS KEY      reads the secret of the access key KEY from its standard input, and prints "radosgw is ready"
# It ends with its standard input, also when the test was killed, and leaves nothing.
set -eu
address=$1 key=$2
read -r secret
folder=$(mktemp -d)
end() {
    # The processes of this script, but not the script itself, which is about to remove their folder.
    trap '' TERM
    kill 0
    wait
    rm -rf "$folder"
}
trap end EXIT
. "$(dirname "$0")/../../../../tests/rack/assets/imageapi/cluster.sh"
cat >> "$CEPH_CONF" <<CONF
[client.rgw.a]
rgw frontends = beast endpoint=$address:7480
rgw thread pool size = 32
rgw data = $folder/rgw
CONF
mkdir "$folder/rgw"
ceph-authtool "$folder/keyring" --gen-key -n client.rgw.a --cap mon 'allow rw' --cap osd 'allow rwx'
ceph auth import -i "$folder/keyring"
radosgw -n client.rgw.a -f &
radosgw-admin user create --uid=images --display-name=images --access-key="$key" --secret="$secret" > /dev/null
until curl --silent --output /dev/null "http://$address:7480"; do
    kill -0 $!
    sleep 0.2
done
echo "radosgw is ready"
cat > /dev/null
