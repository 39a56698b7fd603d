#!/bin/sh
# Issues the identities of network boot, metadata and gateway, unless they have one.
set -eu
issue() { # role, name, further names
    role=$1 name=$2
    folder=/srv/identities/$name/secrets
    [ ! -e "$folder/$role.pem" ] || return 0
    shift 2
    names="--server-name $name"
    for other; do names="$names --server-name $other"; done
    # shellcheck disable=SC2086 # names of hosts
    tinwright identity issue --role "$role" --subject "service:$name" $names --out "$folder"
}
issue edge netboot 198.51.100.2
issue edge metadata 198.51.100.3
issue door gateway localhost 127.0.0.1
