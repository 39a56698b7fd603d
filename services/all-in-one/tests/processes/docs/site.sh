# Machines, locations, models, addresses, stacks and boots of a site.
cp docs/examples/*.yaml docs/examples/user-data .
cp stack.yaml compute.yaml
tinwright serve --netboot-interface eth1 --metadata-link-local eth1 --files /srv/images
tinwright hardware create -f node-1.yaml -f hardware.yaml
tinwright template create -f debian.yaml
tinwright tenant create acme

block docs/reference/hardware-models.md 'Locations and models'
block docs/reference/hardware-models.md 'Accepting enrolled machines'
block docs/reference/templates.md 'The root disk' 's/m1/node-1/'

# An address of a range is attached to an instance.
tinwright power bmc create --hardware node-1 --url https://198.51.100.2 --username admin --password-file pw --skip-login
tinwright instance create -f instance.yaml
block docs/reference/addresses.md Addresses
block docs/reference/addresses.md 'Addresses of locations'

# The agents of nodes are not here.
block docs/reference/nodes.md 'Nodes, stacks and rollouts' '
s/stack apply/& --no-wait/; s/stack rollback/& --no-wait/
s/^.*--nodes/sed -i s,rocky-9,rocky-10, compute.yaml; &/'

write docs/imageapi.md 'With the control plane' yaml compute.yaml
block docs/imageapi.md 'With the control plane (2)' 's/stack apply/& --no-wait/'
tinwright power bmc create --hardware node-3 --url https://198.51.100.4 --username admin --password-file pw --skip-login
write docs/imageapi.md 'With the control plane (2)' yaml n07.yaml
# It waits until its time is over: no machine boots.
block docs/imageapi.md 'With the control plane (3)' 's/^tinwright instance wait node-3/timeout 1 & || [ $? = 124 ]/'

# A machine requests its script, and a kernel that the server does not have.
machine() { ip netns exec "$MACHINE" "$@"; }
machine ip link set lo up
machine ip address add 198.51.100.12/24 dev eth0
machine curl --silent --fail http://198.51.100.1:7080/52-54-00-00-01-02/auto.ipxe
# Boots are stored a moment later.
for _ in $(seq 120); do ! tinwright boot get node-2 || break; sleep 0.5; done
block docs/troubleshooting.md Troubleshooting 's/MACHINE/node-2/'
block docs/troubleshooting.md 'The machine gets no address'
block docs/troubleshooting.md 'The machine gets no address (2)'
block docs/troubleshooting.md 'Kernel or initramfs: 404'
block docs/troubleshooting.md 'The machine boots again and again'
block docs/troubleshooting.md 'An instance stays queued or provisioning' 's/MACHINE/node-1/'
block docs/troubleshooting.md '404 or 403 from 169.254.169.254'
block docs/monitoring/README.md Monitoring

# The page shows a mistake in line 31 of one of four files.
mkdir site
cp locations.yaml debian.yaml node-1.yaml site
{ seq -f '# %g' 29; echo 'kind: Hardware'; echo 'nmae: x'; } > site/rack.yaml
status=0
block docs/reference/files.md 'Objects in files' 's/$/ 2> errors/' || status=$?
[ "$status" = 1 ]
write docs/reference/files.md 'Objects in files' console shown
diff <(grep '^tinwright: ' shown) <(grep '^tinwright: ' errors)
