//! Boot parameters in the kernel's command line: the site's servers, its certificate fingerprint, and this machine's token.
//!
//! If a key occurs twice, the last value is used: the boot script writes the parameters of the single machine last
//! (docs/reference/boot-scripts.md).

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Url;
use runtime::Secret;
use tonic::codegen::http::uri::Authority;

use crate::trust::Fingerprint;

/// A missing or invalid parameter.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The parameter with this name is missing.
    #[error("{0}= is missing from the kernel's command line")]
    Missing(&'static str),
    /// A parameter cannot be read.
    #[error("{name}={value} in the kernel's command line is not {expected}")]
    Invalid {
        /// Its name.
        name: &'static str,
        /// Its value.
        value: String,
        /// The form that it has to have.
        expected: &'static str,
    },
}

/// The parameters of this boot.
#[derive(Debug)]
pub struct BootParameters {
    /// Base URL of this boot's files, with its token; `ca.pem` is one of them.
    pub boot_url: Url,
    /// Host and port of each server of the control plane: that in `grpc_authority`, then those in `grpc_servers`.
    pub servers: Vec<Authority>,
    /// Token that can be redeemed for one certificate.
    pub boot_token: Secret<String>,
    /// Fingerprint of the site's certificate authority.
    pub ca_sha256: Fingerprint,
    /// The server's time at which the script was rendered. `None`: the machine's clock is trusted.
    pub boot_time: Option<SystemTime>,
    /// The worker's name, for the log; the certificate has the identity.
    pub worker_id: Option<String>,
    /// The MAC of the boot interface, for the log.
    pub hw_addr: Option<String>,
    /// The id of the instance at the time of the script, for the log. Each assignment has its own instance id.
    pub instance_id: Option<String>,
}

impl BootParameters {
    /// Parses `line`, as in `/proc/cmdline`. Other words are ignored.
    pub fn parse(line: &str) -> Result<Self, Error> {
        let keys = Keys::parse(line);
        Ok(Self {
            boot_url: keys.required("boot_url", "a URL", |url| {
                Url::parse(url).ok().filter(|url| url.scheme() == "http")
            })?,
            servers: keys.servers()?,
            boot_token: keys.required("boot_token", "", |token| Some(Secret::new(token.into())))?,
            ca_sha256: keys
                .required("ca_sha256", "64 hexadecimal digits", |sum| sum.parse().ok())?,
            boot_time: keys.optional("boot_time", "seconds since 1970", |seconds| {
                UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))
            })?,
            worker_id: keys.text("worker_id"),
            hw_addr: keys.text("hw_addr"),
            instance_id: keys.text("instance_id"),
        })
    }
}

/// The `key=value` words of a command line.
struct Keys(BTreeMap<String, String>);

impl Keys {
    /// Splits `line` like the kernel: at white space, except between double quotes, which are not part of the value.
    fn parse(line: &str) -> Self {
        let mut quoted = false;
        let words = line.split(|letter: char| {
            quoted ^= letter == '"';
            !quoted && letter.is_ascii_whitespace()
        });
        let pair = |word: &str| {
            let word = word.replace('"', "");
            word.split_once('=').map(|(key, value)| (key.to_owned(), value.to_owned()))
        };
        Self(words.filter_map(pair).collect())
    }

    /// Returns the servers of the control plane, each once.
    fn servers(&self) -> Result<Vec<Authority>, Error> {
        let parse = |text: &str| {
            let server: Authority = text.parse().ok()?;
            server.port().is_some().then_some(server)
        };
        let mut servers = vec![self.required("grpc_authority", "host:port", parse)?];
        let list = |text: &str| text.split(',').map(parse).collect::<Option<Vec<_>>>();
        let others = self.optional("grpc_servers", "a list of host:port", list)?;
        for server in others.unwrap_or_default() {
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        Ok(servers)
    }

    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).filter(|value| !value.is_empty()).cloned()
    }

    fn optional<T>(
        &self,
        name: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.text(name) else { return Ok(None) };
        parse(&value).map(Some).ok_or(Error::Invalid { name, value, expected })
    }

    fn required<T>(
        &self,
        name: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Error> {
        self.optional(name, expected, parse)?.ok_or(Error::Missing(name))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LINE: &str = "initrd=initrd modules=loop,sd-mod boot_url=http://198.51.100.1:7080/v1/boot/T-k_n \
        grpc_authority=198.51.100.1:42113 worker_id=w-1 hw_addr=52:54:00:00:00:01 boot_token=s3cret \
        ca_sha256=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 \
        boot_time=1800000000 console=tty0 console=ttyS1,115200 quiet\n";

    #[test]
    fn the_line_of_a_boot_script_is_parsed() {
        let boot = BootParameters::parse(LINE).unwrap();
        assert_eq!(boot.boot_url.as_str(), "http://198.51.100.1:7080/v1/boot/T-k_n");
        assert_eq!(boot.servers, ["198.51.100.1:42113"]);
        assert_eq!(boot.boot_token.expose(), "s3cret");
        assert_eq!(boot.boot_time, Some(UNIX_EPOCH + Duration::from_secs(1_800_000_000)));
        assert_eq!(boot.hw_addr.as_deref(), Some("52:54:00:00:00:01"));
        assert_eq!((boot.worker_id.as_deref(), boot.instance_id), (Some("w-1"), None));
    }

    #[test]
    fn further_servers_follow_the_first_one() {
        let list = "grpc_servers=198.51.100.1:42113,rack.lab:42113,[2001:db8::1]:42113";
        let boot = BootParameters::parse(&format!("{LINE} {list}")).unwrap();
        let expected = ["198.51.100.1:42113", "rack.lab:42113", "[2001:db8::1]:42113"];
        assert_eq!(boot.servers, expected);
    }

    #[test]
    fn the_last_value_of_a_repeated_key_is_used() {
        let boot = BootParameters::parse(&format!("{LINE} worker_id=w-2 worker_id=w-3")).unwrap();
        assert_eq!(boot.worker_id.as_deref(), Some("w-3"));
    }

    #[test]
    fn quotes_enclose_a_value_and_are_not_part_of_it() {
        let boot =
            BootParameters::parse(&format!("{LINE} worker_id=\"rack 7\" \"instance_id=a b\""))
                .unwrap();
        assert_eq!(boot.worker_id.as_deref(), Some("rack 7"));
        assert_eq!(boot.instance_id.as_deref(), Some("a b"));
    }

    #[test]
    fn missing_and_invalid_parameters_are_named() {
        let without = LINE.replace("boot_token=s3cret", "boot_token=");
        assert_eq!(BootParameters::parse(&without).unwrap_err(), Error::Missing("boot_token"));
        for (key, value) in [
            ("boot_url", "ftp://198.51.100.1/"),
            ("grpc_authority", "198.51.100.1"),
            ("grpc_servers", "198.51.100.2:42113,198.51.100.3"),
            ("ca_sha256", "abc"),
            ("boot_time", "-1"),
        ] {
            let error = BootParameters::parse(&format!("{LINE} {key}={value}")).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{key}={value} in ")), "{error}");
        }
    }

    #[test]
    fn the_token_is_not_in_debug_output() {
        assert!(!format!("{:?}", BootParameters::parse(LINE).unwrap()).contains("s3cret"));
    }

    proptest! {
        #[test]
        fn no_line_makes_the_parser_panic(line in "\\PC{0,200}", key in "[a-z_]{0,12}", value in "\\PC{0,20}") {
            let _either = BootParameters::parse(&line);
            let _either = BootParameters::parse(&format!("{LINE} {key}={value}"));
        }
    }
}
