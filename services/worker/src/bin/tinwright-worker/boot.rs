//! What the kernel's command line says: where the site is, how it proves itself to this machine, and this machine to it.
//!
//! The boot script writes it, values for one machine last: of two equal keys the last one wins.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Url;
use runtime::Secret;
use tonic::codegen::http::uri::Authority;

use crate::trust::Fingerprint;

/// Why the command line cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0}= is missing from the kernel's command line")]
    Missing(&'static str),
    #[error("{name}={value} in the kernel's command line is not {wanted}")]
    Invalid { name: &'static str, value: String, wanted: &'static str },
}

/// What this boot was told.
#[derive(Debug)]
pub(crate) struct Boot {
    /// Where this boot's files are, its token included; `ca.pem` is one of them.
    pub(crate) boot_url: Url,
    /// Host and port of the control plane.
    pub(crate) grpc_authority: Authority,
    /// Good for one identity.
    pub(crate) boot_token: Secret<String>,
    /// Of the one certificate authority to trust.
    pub(crate) ca_sha256: Fingerprint,
    /// The server's clock when it wrote the script; absent: ours is trusted.
    pub(crate) boot_time: Option<SystemTime>,
    /// Who the site thinks we are. For the log: what counts is in the certificate.
    pub(crate) worker_id: Option<String>,
    /// The MAC that was booted from. For the log.
    pub(crate) hw_addr: Option<String>,
    /// What occupied the machine when the script was written. For the log: each assignment names its own.
    pub(crate) instance_id: Option<String>,
}

impl Boot {
    /// Reads `line`, as in `/proc/cmdline`. Words of no concern to us are passed over.
    pub(crate) fn parse(line: &str) -> Result<Self, Error> {
        let keys = Keys::of(line);
        Ok(Self {
            boot_url: keys.needed("boot_url", "a URL", |url| {
                Url::parse(url).ok().filter(|url| url.scheme() == "http")
            })?,
            grpc_authority: keys.needed("grpc_authority", "host:port", |authority| {
                authority.parse().ok().filter(|it: &Authority| it.port().is_some())
            })?,
            boot_token: keys.needed("boot_token", "", |token| Some(Secret::new(token.into())))?,
            ca_sha256: keys.needed("ca_sha256", "64 hexadecimal digits", |sum| sum.parse().ok())?,
            boot_time: keys.optional("boot_time", "seconds since 1970", |seconds| {
                UNIX_EPOCH.checked_add(Duration::from_secs(seconds.parse().ok()?))
            })?,
            worker_id: keys.text("worker_id"),
            hw_addr: keys.text("hw_addr"),
            instance_id: keys.text("instance_id"),
        })
    }
}

/// The words of a line that have a value.
struct Keys(BTreeMap<String, String>);

impl Keys {
    /// As the kernel splits it: at white space, except between double quotes, which are no part of the value.
    fn of(line: &str) -> Self {
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

    fn text(&self, name: &str) -> Option<String> {
        self.0.get(name).filter(|value| !value.is_empty()).cloned()
    }

    fn optional<T>(
        &self,
        name: &'static str,
        wanted: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.text(name) else { return Ok(None) };
        read(&value).map(Some).ok_or(Error::Invalid { name, value, wanted })
    }

    fn needed<T>(
        &self,
        name: &'static str,
        wanted: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Error> {
        self.optional(name, wanted, read)?.ok_or(Error::Missing(name))
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
    fn a_boot_scripts_line_is_understood() {
        let boot = Boot::parse(LINE).unwrap();
        assert_eq!(boot.boot_url.as_str(), "http://198.51.100.1:7080/v1/boot/T-k_n");
        assert_eq!(boot.grpc_authority, "198.51.100.1:42113");
        assert_eq!(boot.boot_token.expose(), "s3cret");
        assert_eq!(boot.boot_time, Some(UNIX_EPOCH + Duration::from_secs(1_800_000_000)));
        assert_eq!(boot.hw_addr.as_deref(), Some("52:54:00:00:00:01"));
        assert_eq!((boot.worker_id.as_deref(), boot.instance_id), (Some("w-1"), None));
    }

    #[test]
    fn of_two_equal_keys_the_last_one_wins() {
        let boot = Boot::parse(&format!("{LINE} worker_id=w-2 worker_id=w-3")).unwrap();
        assert_eq!(boot.worker_id.as_deref(), Some("w-3"));
    }

    #[test]
    fn quotes_hold_a_value_together_and_are_no_part_of_it() {
        let boot =
            Boot::parse(&format!("{LINE} worker_id=\"rack 7\" \"instance_id=a b\"")).unwrap();
        assert_eq!(boot.worker_id.as_deref(), Some("rack 7"));
        assert_eq!(boot.instance_id.as_deref(), Some("a b"));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let without = LINE.replace("boot_token=s3cret", "boot_token=");
        assert_eq!(Boot::parse(&without).unwrap_err(), Error::Missing("boot_token"));
        for (key, value) in [
            ("boot_url", "ftp://198.51.100.1/"),
            ("grpc_authority", "198.51.100.1"),
            ("ca_sha256", "abc"),
            ("boot_time", "-1"),
        ] {
            let error = Boot::parse(&format!("{LINE} {key}={value}")).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{key}={value} in ")), "{error}");
        }
    }

    #[test]
    fn the_token_is_not_in_what_logs_show() {
        assert!(!format!("{:?}", Boot::parse(LINE).unwrap()).contains("s3cret"));
    }

    proptest! {
        #[test]
        fn no_line_makes_the_reading_panic(line in "\\PC{0,200}", key in "[a-z_]{0,12}", value in "\\PC{0,20}") {
            let _either = Boot::parse(&line);
            let _either = Boot::parse(&format!("{LINE} {key}={value}"));
        }
    }
}
