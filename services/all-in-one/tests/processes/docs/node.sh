# docs/imageapi.md: the agent of a node, alone.
mount -t tmpfs tmpfs /run
# The node, and the client, which is its own authority.
for name in node operator; do
    openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj "/CN=$name" -addext "subjectAltName=DNS:$name" -addext basicConstraints=CA:FALSE \
        -keyout "$name.key" -out "$name.pem" 2> /dev/null
done
cp operator.pem ca.pem

# Runs in the background, and answers when this returns.
tinwright-node() {
    command tinwright-node "$@" 2>> "$SCRATCH/server.log" &
    SERVER=$!
    case "$*" in
    *unix*) set -- --unix-socket /var/run/imageapi.sock http://localhost ;;
    *https*) set -- --cacert node.pem --cert operator.pem --key operator.key --connect-to node:8443:127.0.0.1:8443 https://node:8443 ;;
    *) set -- http://127.0.0.1:8080 ;;
    esac
    curl --silent --retry 100 --retry-all-errors --retry-delay 0 --retry-max-time 10 "$@/imageapi/v1/mount"
    kill -0 "$SERVER"
}
block docs/imageapi.md 'Running it alone'
block docs/imageapi.md 'Running it alone (2)'
stop_server
block docs/imageapi.md 'Running it alone (3)' 's/^tinwright-node --scheme https/stop_server; &/'
stop_server
