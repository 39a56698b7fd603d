#!/bin/sh
# The chassis of the machine, called by ipmi_sim: reads and writes the power and the boot device, which are files.
# usage: chassis.sh ADDRESS get|set NAME [VALUE] [NAME [VALUE]]...
set -eu
cd /run/machine
verb=$2
shift 2
while [ $# -gt 0 ]; do
    case $verb,$1 in
    get,*) echo "$1:$(cat "$1")" ;;
    set,shutdown) echo shutdown > request; shift ;;
    set,reset) echo reset > request; shift ;;
    set,*) echo "$2" > "$1"; shift ;;
    esac
    shift
done
