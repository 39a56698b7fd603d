"""Prints region, credentials and instance id as botocore, the library of AWS tools in Python, finds them, as JSON."""

import json

from botocore import utils

limits = {"timeout": 60, "num_attempts": 2}
fetcher = utils.IMDSFetcher(**limits)


def instance_id():
    try:
        token = fetcher._fetch_metadata_token()
        # botocore retries while this is true.
        empty = lambda response: response.status_code != 200
        return fetcher._get_request("latest/meta-data/instance-id", empty, token=token).text
    except fetcher._RETRIES_EXCEEDED_ERROR_CLS:
        return None


print(
    json.dumps(
        {
            "region": utils.InstanceMetadataRegionFetcher(**limits).retrieve_region(),
            "credentials": utils.InstanceMetadataFetcher(**limits).retrieve_iam_role_credentials(),
            "instance_id": instance_id(),
        }
    )
)
