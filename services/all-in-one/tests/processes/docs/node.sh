# docs/imageapi.md: the agent of a node, alone.
mount -t tmpfs tmpfs /run
# The node, and the client, which is its own authority.
for name in node operator; do
    openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj "/CN=$name" -addext "subjectAltName=DNS:$name" -addext basicConstraints=CA:FALSE \
        -keyout "$name.key" -out "$name.pem" 2> /dev/null
done
cp operator.pem ca.pem

# An answer that is an error fails.
curl() { command curl --silent --show-error --fail-with-body "$@"; }

# Runs in the background, and answers when this returns.
tinwright-node() {
    command tinwright-node "$@" 2>> "$SCRATCH/server.log" &
    SERVER=$!
    case "$*" in
    *unix*) set -- --unix-socket /var/run/imageapi.sock http://localhost ;;
    *https*) set -- --cacert node.pem --cert operator.pem --key operator.key --connect-to node:8443:127.0.0.1:8443 https://node:8443 ;;
    *) set -- http://127.0.0.1:8080 ;;
    esac
    curl --retry 100 --retry-all-errors --retry-delay 0 --retry-max-time 60 "$@/imageapi/v1/mount"
    kill -0 "$SERVER"
}
block docs/imageapi.md 'Running it alone'
block docs/imageapi.md 'Running it alone (2)'

# A directory stands for that of the NFS server, and a script for systemd.
mkdir -p /run/image/bin
cp /bin/busybox /run/image/bin
for name in sh sleep; do ln -s busybox "/run/image/bin/$name"; done
printf '#!/bin/sh\ntrap "exit 0" 37\necho the system runs\nwhile :; do sleep 1 & wait $!; done\n' > /run/image/init
chmod +x /run/image/init
write docs/imageapi.md '2. A read-only directory of an NFS server, and what is written in memory' json scheme.json
sed -i 's|"kind": "nfs"|"kind": "bind"|; s|"nfs": {[^}]*}|"bind": { "base": "root", "path": "/run/image", "ro": true }|; s|/usr/lib/systemd/systemd|/init|' scheme.json

# Repeats a command until it succeeds, for at most 60 seconds.
wait_until() {
    for _ in $(seq 600); do
        if "$@"; then return; fi
        sleep 0.1
    done
    exit 1
}
has_started() { grep -qrs 'the system runs' /var/run/imageapi/logs; }
has_ended() { case $(api GET 'container?name=compute.rocky') in *'"exited"'*) ;; *) return 1 ;; esac; }
block docs/imageapi.md 'Five schemes'
block docs/imageapi.md 'Five schemes (2)' 's/^api PATCH/wait_until has_started; &/; s/^api DELETE/wait_until has_ended; &/'
[ "$(api GET container)" = '[]' ]
stop_server
block docs/imageapi.md 'Running it alone (3)' 's/^tinwright-node --scheme https/stop_server; &/'
stop_server
