"""Asks botocore, which every AWS tool in Python asks, where it is and who it is; prints its answers as JSON."""

import json

from botocore import utils

patience = {"timeout": 5, "num_attempts": 2}
fetcher = utils.IMDSFetcher(**patience)


def instance_id():
    try:
        token = fetcher._fetch_metadata_token()
        # botocore tries again while this says so.
        empty = lambda response: response.status_code != 200
        return fetcher._get_request("latest/meta-data/instance-id", empty, token=token).text
    except fetcher._RETRIES_EXCEEDED_ERROR_CLS:
        return None


print(
    json.dumps(
        {
            "region": utils.InstanceMetadataRegionFetcher(**patience).retrieve_region(),
            "credentials": utils.InstanceMetadataFetcher(**patience).retrieve_iam_role_credentials(),
            "instance_id": instance_id(),
        }
    )
)
