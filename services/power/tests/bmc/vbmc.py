"""virtualbmc in front of the domain of libvirt's test driver, which has no virtual machine.

usage: vbmc.py PORT USER PASSWORD
"""

import sys

import libvirt
from virtualbmc import vbmc

URI = "test:///default"
port, user, password = sys.argv[1:]
# virtualbmc opens a connection for each command. The domains of the driver exist as long as there is one.
connection = libvirt.open(URI)
connection.lookupByName("test").destroy()
bmc = vbmc.VirtualBMC(user, password, int(port), "127.0.0.1", "test", URI)
print("listening", flush=True)
bmc.listen()
