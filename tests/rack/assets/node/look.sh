#!/bin/sh
# The init of a container that looks for an identity of its node: in boot scripts, in metadata, in files, and in what the kernel shows.
#
# It looks at its start, and again whenever /again is created. The result of each look is /look.1, /look.2 and so on, one source a line:
#   SOURCE STATUS WHAT-WAS-FOUND
# It also leaves the kernel's command line in /cmdline.
export PATH=/bin
/bin/busybox --install -s /bin
trap 'exit 0' TERM

# Prints the value of $1 on the kernel's command line.
argument() {
  tr ' ' '\n' </cmdline | sed -n "s/^$1=//p" | tail -n 1
}

# Prints the line of the source $1, with the status $2. What it answered is in /answer.
result() {
  found=
  for text in 'boot_token=' '/v1/boot/' 'BEGIN CERTIFICATE' 'PRIVATE KEY'; do
    grep -qF "$text" /answer && found=$found,$(echo "$text" | tr ' ' _)
  done
  echo "$1 $2 ${found#,}"
}

# Its own option for a timeout ends Debian's busybox with a segmentation fault.
request() {
  : >/answer
  if error=$(timeout 20 wget -q -O /answer "$1" 2>&1); then
    status=200
  else
    status=$(echo "$error" | sed -n 's|.*HTTP/1\.[01] \([0-9]*\).*|\1|p')
  fi
  result "$1" "${status:-failed}"
}

request_by_tftp() {
  : >/answer
  status=failed
  tftp -g -r "$2" -l /answer "$1" 2>/dev/null && status=200
  result "tftp://$1/$2" $status
}

# Requests $1 of the metadata and, if it ends with a slash, all that its listing names.
metadata() {
  request "http://169.254.169.254$1"
  case $1 in */) ;; *) return ;; esac
  local name
  for name in $(cat /answer); do
    case $name in
      *=*) metadata "$1${name%%=*}/" ;;
      *) metadata "$1$name" ;;
    esac
  done
}

boot_scripts() {
  boot_url=$(argument boot_url) mac=$(argument hw_addr | tr : -) uuid=$(cat /sys/class/dmi/id/product_uuid)
  site=${boot_url%%/v1/*}
  for path in "/$mac/auto.ipxe?uuid=$uuid" "/$mac/auto.ipxe" /auto.ipxe "/ipxe?mac=$mac&uuid=$uuid" "/iso/$mac/boot.iso" \
      /autoexec.ipxe /boot.ipxe; do
    request "$site$path"
  done
  server=${site#http://}
  for name in "$mac/auto.ipxe" "pxelinux.cfg/01-$mac"; do request_by_tftp "${server%:*}" "$name"; done
  request "$boot_url/ca.pem"
}

look() {
  cp /proc/cmdline /cmdline
  cp /cmdline /answer
  result /proc/cmdline 200
  find / \( -path /proc -o -path /sys \) -prune -o \( -name identity.json -o -name imageapi.sock \) -exec echo {} 200 file \;
  boot_scripts
  for path in /latest/meta-data/ /latest/dynamic/ /latest/user-data /metadata /userdata /instance-identity.pem \
      /nocloud/meta-data /nocloud/user-data /nocloud/vendor-data /nocloud/network-config \
      /openstack/latest/meta_data.json /openstack/latest/user_data /openstack/latest/vendor_data.json \
      /openstack/latest/vendor_data2.json /openstack/latest/network_data.json /openstack/latest/password; do
    metadata $path
  done
}

number=0
while :; do
  if [ $number = 0 ] || [ -e /again ]; then
    rm -f /again
    number=$((number + 1))
    look >/look.new
    mv /look.new /look.$number
  fi
  sleep 1 &
  wait $!
done
