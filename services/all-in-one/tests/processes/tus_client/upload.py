"""Uploads a file with tuspy, a client of tus 1.0 by its authors. Prints the offset at which each interrupted request goes on.

usage: upload.py URL FILE    the API key is in the environment variable API_KEY
"""
import os
import sys

from tusclient.client import TusClient
from tusclient.uploader import Uploader

url, file = sys.argv[1:]


class PrintingUploader(Uploader):
    def get_offset(self):
        offset = super().get_offset()
        print(offset, flush=True)
        return offset


client = TusClient(url, headers={"X-Api-Key": os.environ["API_KEY"]})
uploader = PrintingUploader(
    file_path=file, client=client, chunk_size=8 << 20, retries=100, retry_delay=0.1
)
uploader.upload()
