# The examples in docs/reference/api.md for Python, in one program. TOOLS is the folder of the tests' own Python.
tinwright serve --netboot-interface eth1 --metadata-link-local eth1
cd /var/lib/tinwright/secrets
page="$BLOCKS/docs/reference/api.md"
mv "$page/The API.python" "$SCRATCH/api.py"
cat "$page"/*.python >> "$SCRATCH/api.py"
"$TOOLS/python" "$SCRATCH/api.py"
