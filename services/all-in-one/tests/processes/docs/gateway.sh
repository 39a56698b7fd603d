# docs/gateway.md: keys, and requests of REST.
tinwright serve
tinwright hardware create -f docs/examples/node-1.yaml -f docs/examples/hardware.yaml
echo '{name: any, constraints: {architecture: x86_64}}' | tinwright model create -f -
tinwright template create -f docs/examples/debian.yaml
echo password > pw
for NAME in node-1 node-2 node-3; do
    tinwright power bmc create --hardware $NAME --url https://198.51.100.1${NAME#node-} --username admin --password-file pw --skip-login
done
cd /var/lib/tinwright
block docs/gateway.md Clients 's/--role operator/& > key/; s/KEY=…/KEY=$(sed -n "s,.*: ,,p" key)/'

curl() { command curl --silent --show-error --fail --max-time 60 --cacert secrets/ca.pem -H "X-Api-Key: $KEY" "$@"; }
API=https://127.0.0.1:8080/api/v1
id() { tinwright "$1" get "$2" -o json | sed -n 's/^ *"id": "\(.*\)",$/\1/p' | head -n 1; }
ID=$(id hardware node-1)
OTHER=$(id hardware node-2)
MODEL=$(id model any)
TEMPLATE=$(id template debian)
# The revision is that of the machine then; a deleted machine has no state; and a watch has no end.
block docs/gateway.md Requests '
s/"…"/"'"$MODEL"'"/; s/"…"/"'"$TEMPLATE"'"/
s/'\''If-Match: "42"'\''/"If-Match: $(curl -I "$API\/hardware\/$ID" | sed -n "s,^etag: ,,p" | tr -d "\\r")"/
s/^.*:setState/ID=$OTHER; &/
s/^curl -N\(.*instances"\)/timeout 1 curl --silent --fail --cacert secrets\/ca.pem -H "X-Api-Key: $KEY" -N\1 || [ $? = 124 ]/'

# The id of the image is not known before.
{ head -c 446 /dev/zero; head -c 64 /dev/zero; printf '\125\252'; head -c 1048064 /dev/zero; } > disk.raw
block docs/gateway.md 'Uploads of images' '/^curl -T/s/.*/ID=$(id image debian-lab); &/'
timeout 60 sh -c 'until tinwright image get debian-lab | grep -q ready; do sleep 1; done'
