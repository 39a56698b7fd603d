# Makes a computer of its own for the commands of the documents, and the functions of the scenarios.
#
# Files that are written below /etc, /root, /srv and /var are discarded at the end, and the processes that were started end with this shell.
# From the test: BLOCKS, the folder with the blocks of the documents; SCRATCH, an empty folder; ROOT, the work tree; MACHINE, the name
# of the network namespace of a machine with the Ethernet address of node-2.
set -euo pipefail

mount -t tmpfs tmpfs "$SCRATCH"
for folder in etc root srv var; do
    mkdir -p "$SCRATCH/$folder/upper" "$SCRATCH/$folder/work"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$SCRATCH/$folder/upper,workdir=$SCRATCH/$folder/work" "/$folder"
done
export HOME=/root
unset XDG_CONFIG_HOME XDG_STATE_HOME
rm -rf /etc/tinwright /var/lib/tinwright /root/.config/tinwright
mkdir -p /root/work /root/.ssh /srv/images /var/backups
echo 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPvYzMJhYqgbpaUCDnZSGoxSqFzWVCFgZSCTIlmRxkB anna' > /root/.ssh/id_ed25519.pub
echo secret > /root/work/pw
cd /root/work
ln -s "$ROOT/docs" docs

# The interface and the addresses that the documents name.
ip link set br0 down
ip link set br0 name eth1
ip link set eth1 up
ip address add 192.0.2.1/24 dev eth1

# Waits until the server serves, at most 60 seconds.
ready() {
    { local vitals="${TINWRIGHT_METRICS_LISTEN:-127.0.0.1:9464}"; set +x; } 2> /dev/null
    for _ in $(seq 600); do
        if curl --silent --fail "http://$vitals/readyz" > /dev/null; then set -x; return; fi
        kill -0 "$SERVER"
        sleep 0.1
    done
    exit 1
}

# Waits until the boot server has read the record of the machine, at most 10 seconds.
explained() {
    { set +x; } 2> /dev/null
    for _ in $(seq 100); do
        if command tinwright boot explain "$@" > /dev/null 2>&1; then break; fi
        sleep 0.1
    done
    set -x
}

# A server runs in the background, and is ready when this returns.
tinwright() {
    if [ "$1 ${2:-}" = "boot explain" ]; then
        explained "${@:3}"
    fi
    if [ "$1" != serve ]; then
        command tinwright "$@"
        return
    fi
    command tinwright "$@" 2>> "$SCRATCH/server.log" &
    SERVER=$!
    ready
}

# Stops the server, which has to end without an error.
stop_server() {
    kill "$SERVER"
    wait "$SERVER"
}

# Runs the commands of a block, by its page and heading, after these replacements of sed. Several blocks under one heading are numbered: 'Heading (2)'.
block() {
    echo "== $1: $2"
    sed -e "${3:-}" "$BLOCKS/$1/$2.commands" > "$SCRATCH/block.sh"
    . "$SCRATCH/block.sh"
}

# Writes a block of another language, such as yaml, into a file. A block of the language console has the output of its commands, too.
write() {
    cp "$BLOCKS/$1/$2.$3" "$4"
}

trap 'status=$?; if [ "$status" != 0 ]; then echo "exit code $status; the server:"; tail -n 20 "$SCRATCH/server.log"; fi' EXIT
set -x
