#!/bin/sh
# Creates the records of the machine, a template, and an instance on the machine, unless they exist.
set -eu
tinwright hardware get lab-1 > /dev/null 2>&1 || tinwright hardware create -f /lab/hardware.yaml
# ipmi_sim lists no cipher suites, for which ipmitool waits ten seconds.
tinwright power bmc get lab-1 > /dev/null 2>&1 \
    || tinwright power bmc create --hardware lab-1 --ipmi 198.51.100.40 --cipher-suite 3 --username admin --password-file "$BMC_PASSWORD_FILE"
tinwright template get debian > /dev/null 2>&1 || tinwright template create -f /lab/template.yaml
tinwright instance get lab-1 > /dev/null 2>&1 || tinwright instance create \
    --hardware lab-1 --template debian --userdata /lab/user-data.yaml \
    --value image_url=http://198.51.100.2:7080/files/debian.raw.zst --value image_sha256="$(cat /srv/images/debian.raw.zst.sha256)"
