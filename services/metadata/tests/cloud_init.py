"""Runs cloud-init's own Ec2 data source, and prints what it found as JSON: null if it gave up.

usage: cloud_init.py LIBRARY unknown|aws SECONDS [PHONE_HOME_URL]

LIBRARY is the folder that holds the package cloudinit. On "unknown" hardware it never requests a token. It waits for
SECONDS at most. With a URL it then runs its module phone_home, as an installed system does at the end of its first boot.
"""

import json
import logging
import sys

library, platform, seconds = sys.argv[1:4]
sys.path.insert(0, library)

from cloudinit import cloud, distros, helpers
from cloudinit.config import cc_phone_home
from cloudinit.sources import DataSourceEc2 as ec2

ec2.identify_platform = lambda: platform
settings = {"strict_id": False, "metadata_urls": ["http://169.254.169.254"], "max_wait": int(seconds), "timeout": int(seconds)}
config = {"datasource": {"Ec2": settings}}
paths = helpers.Paths({"cloud_dir": "cloud", "run_dir": "run"})
distro = distros.fetch("debian")("debian", config, paths)
source = ec2.DataSourceEc2(config, distro, paths)


def text(answer):
    """Newer releases wrap a host name in a tuple."""
    return getattr(answer, "hostname", answer)


def found():
    network = ec2.convert_ec2_metadata_network_config(
        source.metadata["network"], macs_to_nics={"52:54:00:00:00:01": "eth0"}
    )
    return {
        "instance_id": source.get_instance_id(),
        "hostname": text(source.get_hostname(fqdn=True)),
        "keys": source.get_public_ssh_keys(),
        "tags": source.metadata.get("tags", {}).get("instance"),
        "user_data": (source.get_userdata_raw() or b"").decode(),
        "zone": source.availability_zone,
        "region": source.region,
        "network": network,
        "identity": source.identity,
        "asked_for_token": bool(source._api_token),
    }


print(json.dumps(found() if source._get_data() else None))

if sys.argv[4:]:
    phone_home = {"url": sys.argv[4], "tries": 1, "post": ["instance_id", "hostname", "fqdn"]}
    up = cloud.Cloud(source, paths, config, distro, None)
    cc_phone_home.handle("phone_home", {"phone_home": phone_home}, up, logging.getLogger(), [])
