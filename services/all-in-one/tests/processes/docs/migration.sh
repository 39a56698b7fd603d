# docs/migration-tinkerbell.md: from the objects of a Kubernetes cluster to a workflow.
tinwright serve --netboot-interface eth1
# Prints what a cluster has.
kubectl() {
    case "$*" in
    *jsonpath*) sed 's,IMG_URL: .*,IMG_URL: "{{ .img }}",' docs/examples/debian.yaml ;;
    *) cat "$ROOT/services/all-in-one/tests/processes/docs/tinkerbell.yaml" ;;
    esac
}
block docs/migration-tinkerbell.md 'Migration from Tinkerbell'
write docs/migration-tinkerbell.md Hardware yaml hardware.yaml
block docs/migration-tinkerbell.md Hardware
block docs/migration-tinkerbell.md Templates
block docs/migration-tinkerbell.md 'BMCs (rufio)' 's/--username admin/& --password-file pw --skip-login/'
block docs/migration-tinkerbell.md Workflows
write docs/migration-tinkerbell.md Instances yaml instance.yaml
sed -i "s,ssh-ed25519 AAAA…,$(cut -d ' ' -f 1,2 /root/.ssh/id_ed25519.pub)," instance.yaml
block docs/migration-tinkerbell.md Instances
