"""Runs cloud-init's own NoCloud or OpenStack data source, and prints what it found as JSON: null if it gave up.

usage: seeds.py LIBRARY nocloud SEED_URL | openstack

LIBRARY is the folder that holds the package cloudinit.
"""

import json
import sys
import time

library, kind = sys.argv[1:3]
sys.path.insert(0, library)

from cloudinit import distros, helpers
from cloudinit.net import network_state
from cloudinit.sources import DataSourceNoCloud as nocloud
from cloudinit.sources import DataSourceOpenStack as openstack
from cloudinit.sources.helpers import openstack as documents

settings = {"metadata_urls": ["http://169.254.169.254"], "max_wait": 60, "timeout": 60}
config = {"datasource": {"OpenStack": settings, "NoCloud": {}}, "datasource_list": ["NoCloud", "OpenStack"]}
paths = helpers.Paths({"cloud_dir": "cloud", "run_dir": "run"})
distro = distros.fetch("debian")("debian", config, paths)
MACS = {"52:54:00:00:00:01": "eth0", "52:54:00:00:00:11": "eth1"}

if kind == "nocloud":
    source = nocloud.DataSourceNoCloudNet(config, distro, paths)
    source.ds_cfg = {"seedfrom": sys.argv[3], "fs_label": None}
else:
    # As with "ci.ds=OpenStack" on the kernel command line; the hardware here is not OpenStack's.
    openstack.detect_openstack = lambda **_: True
    source = openstack.DataSourceOpenStack(config, distro, paths)


def network():
    """Returns the network as cloud-init's renderers get it. Version 22.4.2 does not fetch NoCloud's by itself."""
    if kind == "nocloud":
        from cloudinit import url_helper, util

        url = sys.argv[3] + "network-config"
        wanted = util.load_yaml(url_helper.readurl(url, timeout=60).contents)
    else:
        wanted = documents.convert_net_json(source.network_json, known_macs=MACS)
    state = network_state.parse_net_config_data(wanted, skip_broken=False)
    interfaces = state.iter_interfaces()
    return {each["name"]: [one.get("address") for one in each["subnets"]] for each in interfaces}


# cloud-init sleeps before it repeats a request.
pauses = []
sleep = time.sleep
time.sleep = lambda seconds: pauses.append(seconds) or sleep(seconds)
found = source._get_data()
print(
    json.dumps(
        {
            "repeated": len(pauses),
            "instance_id": source.get_instance_id(),
            "hostname": getattr(source.get_hostname(fqdn=True), "hostname", source.get_hostname(fqdn=True)),
            "keys": source.get_public_ssh_keys(),
            "user_data": (source.get_userdata_raw() or b"").decode(),
            "network": network(),
        }
        if found
        else None
    )
)
