#!/bin/sh
# Serves directories over NFS 4 with Ganesha.
# usage: ganesha.sh ADDRESS FOLDER NAME...     exports FOLDER/NAME as /NAME; writes FOLDER/ganesha.conf
set -eu
address=$1 folder=$2
shift 2
{
    echo "NFS_CORE_PARAM { Protocols = 4; NFS_Port = 2049; Bind_addr = $address; Enable_NLM = false; Enable_RQUOTA = false; }"
    # Without the period in which clients of an earlier server reclaim their locks.
    echo 'NFSv4 { Graceless = true; RecoveryBackend = fs; Only_Numeric_Owners = true; Minor_Versions = 0,1,2; }'
    id=0
    for name; do
        id=$((id + 1))
        echo "EXPORT { Export_Id = $id; Path = $folder/$name; Pseudo = /$name; Access_Type = RW; Squash = No_Root_Squash;"
        echo "  SecType = sys; Transports = TCP; Protocols = 4; FSAL { Name = VFS; } }"
    done
} > "$folder/ganesha.conf"
# Its state is written to fixed paths.
for state in /var/lib/nfs /run; do mount -t tmpfs state "$state"; done
mkdir -p /var/lib/nfs/ganesha /run/ganesha
exec ganesha.nfsd -F -L STDERR -f "$folder/ganesha.conf" -p "$folder/ganesha.pid"
