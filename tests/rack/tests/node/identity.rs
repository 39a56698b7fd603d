//! A container on the node searches for an identity of the node. Its boot token is used up.

use std::time::Duration;

use rack::SERVER;
use rack::client::Client;
use rack::lab::wait;
use rcgen::KeyPair;
use tokio::task::block_in_place;
use tonic::Code;

use crate::machine::NodeSite;

/// Maximum time of a look: some sixty requests, on an emulated processor.
const LOOK_TIMEOUT: Duration = Duration::from_secs(180);
/// The number of the host that takes the place of the machine.
const STAND_IN: u8 = 9;

/// A source that the container looked into.
#[derive(Debug)]
struct Source<'a> {
    name: &'a str,
    /// Of HTTP, or a word.
    status: &'a str,
    /// The parts that were found, separated by commas.
    found: &'a str,
}

impl NodeSite {
    /// Waits until the container has looked `number` times since its start, and checks that it has found no identity. Returns the boot token,
    /// which it reads from the kernel's command line.
    pub(crate) fn until_container_looked(&mut self, number: u32) -> String {
        block_in_place(|| {
            let root = self.root();
            let shell = self.shell();
            let result = wait("the container's look", LOOK_TIMEOUT, || {
                shell.run(&format!("cat {root}/look.{number}")).ok()
            });
            let line = shell.run(&format!("cat {root}/cmdline")).unwrap();
            let journal = "/var/lib/tinwright/node/control-plane/identity.json";
            shell.run(&format!("grep -q 'PRIVATE KEY' {journal}")).unwrap();
            let (result, word) = (result.unwrap(), |key| word(&line, key));
            self.check_look(&result, word("boot_url="));
            println!("look {number}: {} sources", result.lines().count());
            word("boot_token=").to_owned()
        })
    }

    /// Lets the container look again.
    pub(crate) fn look_again(&mut self) {
        block_in_place(|| {
            let root = self.root();
            self.shell().run(&format!("touch {root}/again")).unwrap();
        });
    }

    /// Checks what the container found.
    fn check_look(&self, result: &str, boot_url: &str) {
        let sources: Vec<_> = result.lines().map(source).collect();
        // The same search finds the token in the line, and two certificates of which everybody may know: the authority's, beside the boot files,
        // and the one that verifies signed documents of the metadata. It would find others.
        let authority = format!("{boot_url}/ca.pem");
        let found: Vec<_> = sources.iter().filter(|it| !it.found.is_empty()).collect();
        let found: Vec<_> = found.iter().map(|it| (it.name, it.found)).collect();
        let expected = [
            ("/proc/cmdline", "boot_token=,/v1/boot/"),
            (authority.as_str(), "BEGIN_CERTIFICATE"),
            ("http://169.254.169.254/instance-identity.pem", "BEGIN_CERTIFICATE"),
        ];
        assert_eq!(found, expected, "{result}");
        let (mac, uuid) = (self.machine.mac.replace(':', "-"), &self.machine.uuid);
        for path in [
            format!("/{mac}/auto.ipxe?uuid={uuid}"),
            format!("/{mac}/auto.ipxe"),
            "/auto.ipxe".to_owned(),
            format!("/ipxe?mac={mac}&uuid={uuid}"),
            format!("/iso/{mac}/boot.iso"),
        ] {
            let status = status(&sources, &format!("http://{SERVER}:7080{path}"));
            assert!(status.parse::<u16>().is_ok_and(|it| it >= 400), "{path}: {status}: {result}");
        }
        for path in [format!("{mac}/auto.ipxe"), format!("pxelinux.cfg/01-{mac}")] {
            assert_eq!(status(&sources, &format!("tftp://{SERVER}/{path}")), "failed", "{result}");
        }
        // The metadata service does answer the container, and its listings were followed.
        let interface = format!("network/interfaces/macs/{}/mac", self.machine.mac);
        for path in ["instance-id", &interface] {
            let url = format!("http://169.254.169.254/latest/meta-data/{path}");
            assert_eq!(status(&sources, &url), "200", "{result}");
        }
    }

    /// Redeems the node's token with another key, from the node's address and in its boot: the token is refused because of the key.
    ///
    /// A host takes the place of the machine, which does nothing meanwhile.
    pub(crate) fn check_token(&self, token: &str, boot_id: &str) {
        let (site, address) = (&self.site, &self.machine.address);
        block_in_place(|| {
            site.hypervisor.suspend(&self.machine).unwrap();
            let host = Client::new(&site.lab, STAND_IN, &self.machine.mac).unwrap();
            host.configure(address).unwrap();
            let key = KeyPair::generate().unwrap();
            let redeemed = host.redeem_in_boot(&site.server, address, token, &key, boot_id);
            let refused = redeemed.unwrap().unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
            assert_eq!(refused.message(), "the boot token was used with another key");
            drop(host);
            site.hypervisor.resume(&self.machine).unwrap();
        });
    }
}

/// Parses a line of a look.
fn source(line: &str) -> Source<'_> {
    let mut words = line.splitn(3, ' ');
    let mut next = || words.next().unwrap_or_default();
    Source { name: next(), status: next(), found: next() }
}

/// Returns the status of the source `name`.
fn status<'a>(sources: &[Source<'a>], name: &str) -> &'a str {
    let found = sources.iter().find(|it| it.name == name);
    found.unwrap_or_else(|| panic!("{name} is not in {sources:?}")).status
}

/// Returns the value of the word that begins with `key`.
fn word<'a>(line: &'a str, key: &str) -> &'a str {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)).unwrap()
}
