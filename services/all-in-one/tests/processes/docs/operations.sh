# docs/operations.md, docs/security.md and docs/processes.md: backup and restore, certificates and roles, several processes.
export TINWRIGHT_LISTEN=192.0.2.1:42113,127.0.0.1:42113
# The pages name a day.
date() { echo 2026-11-26; }

tinwright serve
tinwright hardware create -f docs/examples/node-1.yaml
block docs/operations.md Backup
stop_server
rm -r /var/lib/tinwright
block docs/operations.md Restore
block docs/operations.md 'Restore (2)'
tinwright hardware get node-1

block docs/operations.md 'Certificates and roles'
block docs/operations.md 'Certificates and roles (2)'
tinwright context remove lab
serial=$(tinwright identity list -o json | grep -o '"serial": "[0-9a-f]*"' | head -n 1 | cut -d '"' -f 4)
block docs/operations.md 'Certificates and roles (3)' "s/48a2[0-9a-f]*/$serial/"
block docs/security.md Doors
block docs/processes.md 'A builder on its own'
block docs/security.md Edges
etcd --data-dir "$SCRATCH/etcd" 2> /dev/null &
export ETCDCTL_API=3
timeout 60 bash -c 'until etcdctl endpoint health; do sleep 0.1; done' 2> /dev/null
block docs/security.md 'Edges (2)' 's/user add rack-7/& --no-password/'
rm -r gateway
mkdir -p /root/builder
mv builder/secrets /root/builder/
stop_server

# The door is another computer in the document: here, the same ports are free only if the server does not use them.
TINWRIGHT_GATEWAY_LISTEN=none tinwright serve
cp -r /var/lib/tinwright/secrets /root/lab
block docs/processes.md Replicas
tinwright context remove lab
export TINWRIGHT_METRICS_LISTEN=127.0.0.1:9465 TINWRIGHT_LISTEN=127.0.0.1:42114
block docs/gateway.md 'A process of its own'

# Another computer in the document, too.
ip address add 169.254.169.254/32 dev eth1
ip address add 192.0.2.2/24 dev eth1
mkdir /root/metadata
cp -r /root/lab /root/metadata/secrets
export TINWRIGHT_METRICS_LISTEN=127.0.0.1:9466 TINWRIGHT_DATA=/root/metadata TINWRIGHT_GATEWAY_LISTEN=none
block docs/processes.md 'Services on their own'

# And another one.
ip address add 192.0.2.3/24 dev eth1
export TINWRIGHT_METRICS_LISTEN=127.0.0.1:9467 TINWRIGHT_DATA=/root/builder
block docs/processes.md 'A builder on its own (2)'
