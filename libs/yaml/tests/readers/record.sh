#!/bin/sh
# Records what Psych, go-yaml and npm's yaml make of the corpus: the files *.json in this directory besides the corpus itself.
#
# usage: record.sh
# Run it after a change of the writer or of corpus.json. Installs Debian's ruby, golang-go, golang-gopkg-yaml.v2-dev,
# golang-gopkg-yaml.v3-dev and npm, so it needs root, and npm's yaml below target.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../../.." && pwd)
programs=$root/target/peers/yaml-readers
mkdir -p "$programs"

# Other releases of Go and Node than Debian's will do: they do not read the YAML.
wanted=
command -v ruby > /dev/null || wanted="$wanted ruby"
command -v go > /dev/null || wanted="$wanted golang-go"
command -v npm > /dev/null || wanted="$wanted npm"
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
    $wanted golang-gopkg-yaml.v2-dev golang-gopkg-yaml.v3-dev

npm install --silent --no-save --prefix "$programs" yaml@2
for version in 2 3; do
    sed "s/yaml\.v2/yaml.v$version/" "$here/read.go" > "$programs/read-v$version.go"
    GO111MODULE=off GOPATH=/usr/share/gocode go build -o "$programs/go-yaml-v$version" "$programs/read-v$version.go"
done

dpkg-query --show --showformat='${Package} ${Version}\n' golang-gopkg-yaml.v2-dev golang-gopkg-yaml.v3-dev
cd "$root"
RECORD_READERS=$programs NODE_PATH=$programs/node_modules cargo test --package yaml --test readers recorded
