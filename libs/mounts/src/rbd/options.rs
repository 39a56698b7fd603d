//! What can be said about an image to map, and the line that says it to the kernel.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use crate::{Error, Result};

/// A text that is shown nowhere.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// Returns the text, for the kernel.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// In place of a snapshot's name: the image itself.
pub(super) const NO_SNAPSHOT: &str = "-";

/// An image, or a snapshot of one, to map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RbdImage {
    /// Addresses of monitors: IPv4, or IPv6 in brackets, either with a port after a colon or without.
    pub monitors: Vec<String>,
    /// Name of the pool.
    pub pool: String,
    /// Name of the image.
    pub image: String,
    /// Name of the snapshot; empty for the image itself.
    pub snapshot: String,
    /// Options of the client.
    pub options: RbdOptions,
}

impl RbdImage {
    /// Returns the snapshot's name as the kernel has it.
    pub(super) fn kernel_snapshot(&self) -> &str {
        if self.snapshot.is_empty() { NO_SNAPSHOT } else { &self.snapshot }
    }
}

/// Options of the kernel's client. Those that are empty, zero or false are left out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[expect(
    missing_docs,
    reason = "the names are those of the kernel's options; those that differ are described"
)]
pub struct RbdOptions {
    pub fsid: String,
    pub ip: String,
    /// User, without `client.`.
    pub name: String,
    /// The user's key, in base64.
    pub secret: Secret,
    /// Namespace in the pool: `_pool_ns`.
    pub namespace: String,
    pub share: bool,
    pub noshare: bool,
    pub crc: bool,
    pub nocrc: bool,
    /// `cephx_require_signatures`.
    pub ceph_requires_signatures: bool,
    /// `nocephx_require_signatures`.
    pub noceph_requires_signatures: bool,
    pub tcp_nodelay: bool,
    pub notcp_nodelay: bool,
    pub cephx_sign_messages: bool,
    pub nocephx_sign_messages: bool,
    pub rw: bool,
    pub ro: bool,
    pub lock_on_read: bool,
    pub exclusive: bool,
    pub notrim: bool,
    pub abort_on_full: bool,
    /// Seconds.
    pub mount_timeout: i64,
    /// Seconds.
    pub osdkeepalive: i64,
    /// Seconds.
    pub osd_idle_ttl: i64,
    pub queue_depth: i64,
    /// Seconds.
    pub lock_timeout: i64,
    /// Bytes.
    pub alloc_size: i64,
}

/// Returns the line for the control file: `<monitors> <options> <pool> <image> <snapshot or ->`.
///
/// # Errors
/// [`Error::Invalid`] if something is missing, contradicts something else, or would be taken for two fields.
pub(super) fn add_line(image: &RbdImage) -> Result<Secret> {
    let monitors = image.monitors.join(",");
    if image.monitors.is_empty() || !image.monitors.iter().all(|text| is_monitor(text)) {
        return Err(Error::Invalid(format!("{monitors:?} is not a list of monitor addresses")));
    }
    for (name, value) in [("pool", &image.pool), ("image", &image.image)] {
        check_value(name, value)?;
        require(name, value)?;
    }
    check_value("snapshot", &image.snapshot)?;
    let options = option_list(&image.options)?;
    let RbdImage { pool, image: name, .. } = image;
    let snapshot = image.kernel_snapshot();
    Ok(Secret(format!("{monitors} {options} {pool} {name} {snapshot}")))
}

fn is_monitor(text: &str) -> bool {
    let ipv6 = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    text.parse::<SocketAddr>().is_ok()
        || text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv4())
        || ipv6.is_some_and(|text| text.parse::<IpAddr>().is_ok_and(|address| address.is_ipv6()))
}

fn require(name: &str, value: &str) -> Result<()> {
    if value.is_empty() {
        return Err(Error::Invalid(format!("rbd: {name} is missing")));
    }
    Ok(())
}

/// Refuses what would be two fields or two options. The value is not shown: it may be a key.
fn check_value(name: &str, value: &str) -> Result<()> {
    let separates = |letter: char| letter == ',' || letter.is_whitespace() || letter.is_control();
    if value.contains(separates) {
        return Err(Error::Invalid(format!("rbd: {name} has a comma, blank or control character")));
    }
    Ok(())
}

fn option_list(options: &RbdOptions) -> Result<String> {
    require("option name", &options.name)?;
    require("option secret", options.secret.expose())?;
    check_contradictions(options)?;
    let mut list: Vec<String> = Vec::new();
    let access = [("ro", options.ro), ("rw", options.rw)];
    list.extend(access.into_iter().filter(|(_, set)| *set).map(|(word, _)| word.to_owned()));
    for (key, value) in texts(options) {
        check_value(key, value)?;
        if !value.is_empty() {
            list.push(format!("{key}={value}"));
        }
    }
    list.extend(
        words(options).into_iter().filter(|(_, set)| *set).map(|(word, _)| word.to_owned()),
    );
    for (key, value) in numbers(options) {
        if value < 0 {
            return Err(Error::Invalid(format!("rbd: {key} is negative")));
        }
        if value > 0 {
            list.push(format!("{key}={value}"));
        }
    }
    Ok(list.join(","))
}

fn check_contradictions(options: &RbdOptions) -> Result<()> {
    let pairs = [
        ("ro and rw", options.ro && options.rw),
        ("share and noshare", options.share && options.noshare),
        ("crc and nocrc", options.crc && options.nocrc),
        (
            "ceph_requires_signatures and noceph_requires_signatures",
            options.ceph_requires_signatures && options.noceph_requires_signatures,
        ),
        ("tcp_nodelay and notcp_nodelay", options.tcp_nodelay && options.notcp_nodelay),
        (
            "cephx_sign_messages and nocephx_sign_messages",
            options.cephx_sign_messages && options.nocephx_sign_messages,
        ),
    ];
    match pairs.iter().find(|(_, both)| *both) {
        None => Ok(()),
        Some((pair, _)) => Err(Error::Invalid(format!("rbd: {pair} contradict each other"))),
    }
}

fn texts(options: &RbdOptions) -> [(&'static str, &str); 5] {
    [
        ("name", &options.name),
        ("secret", options.secret.expose()),
        ("_pool_ns", &options.namespace),
        ("fsid", &options.fsid),
        ("ip", &options.ip),
    ]
}

/// Options without a value. `ceph_requires_signatures` has another name in the kernel (net/ceph/ceph_common.c).
fn words(options: &RbdOptions) -> [(&'static str, bool); 14] {
    [
        ("share", options.share),
        ("noshare", options.noshare),
        ("crc", options.crc),
        ("nocrc", options.nocrc),
        ("cephx_require_signatures", options.ceph_requires_signatures),
        ("nocephx_require_signatures", options.noceph_requires_signatures),
        ("tcp_nodelay", options.tcp_nodelay),
        ("notcp_nodelay", options.notcp_nodelay),
        ("cephx_sign_messages", options.cephx_sign_messages),
        ("nocephx_sign_messages", options.nocephx_sign_messages),
        ("lock_on_read", options.lock_on_read),
        ("exclusive", options.exclusive),
        ("notrim", options.notrim),
        ("abort_on_full", options.abort_on_full),
    ]
}

fn numbers(options: &RbdOptions) -> [(&'static str, i64); 6] {
    [
        ("mount_timeout", options.mount_timeout),
        ("osdkeepalive", options.osdkeepalive),
        ("osd_idle_ttl", options.osd_idle_ttl),
        ("queue_depth", options.queue_depth),
        ("lock_timeout", options.lock_timeout),
        ("alloc_size", options.alloc_size),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn image() -> RbdImage {
        RbdImage {
            monitors: vec!["10.20.0.31".into(), "10.20.0.32".into()],
            pool: "nodes".into(),
            image: "login-b".into(),
            snapshot: String::new(),
            options: RbdOptions {
                name: "nodes-rw".into(),
                secret: Secret::from("QVFEZQ==".to_owned()),
                ..RbdOptions::default()
            },
        }
    }

    fn with(change: impl FnOnce(&mut RbdImage)) -> RbdImage {
        let mut image = image();
        change(&mut image);
        image
    }

    fn line(image: &RbdImage) -> String {
        add_line(image).unwrap().expose().to_owned()
    }

    #[test]
    fn the_line_of_the_plain_case_is_exact() {
        let plain = "10.20.0.31,10.20.0.32 name=nodes-rw,secret=QVFEZQ== nodes login-b -";
        assert_eq!(line(&image()), plain);
        let snapshot = with(|image| {
            image.snapshot = "gold".into();
            image.options.ro = true;
            image.options.namespace = "prod".into();
        });
        let expected = "10.20.0.31,10.20.0.32 ro,name=nodes-rw,secret=QVFEZQ==,_pool_ns=prod nodes login-b gold";
        assert_eq!(line(&snapshot), expected);
    }

    #[test]
    fn d24_every_option_has_its_kernel_spelling() {
        let first = with(|image| {
            image.options = RbdOptions {
                fsid: "f".into(),
                ip: "10.0.0.1".into(),
                namespace: "n".into(),
                share: true,
                crc: true,
                ceph_requires_signatures: true,
                tcp_nodelay: true,
                cephx_sign_messages: true,
                rw: true,
                lock_on_read: true,
                exclusive: true,
                notrim: true,
                abort_on_full: true,
                mount_timeout: 1,
                osdkeepalive: 2,
                osd_idle_ttl: 3,
                queue_depth: 4,
                lock_timeout: 5,
                alloc_size: 6,
                ..image.options.clone()
            }
        });
        let expected = "rw,name=nodes-rw,secret=QVFEZQ==,_pool_ns=n,fsid=f,ip=10.0.0.1,share,crc,cephx_require_signatures,\
            tcp_nodelay,cephx_sign_messages,lock_on_read,exclusive,notrim,abort_on_full,mount_timeout=1,osdkeepalive=2,\
            osd_idle_ttl=3,queue_depth=4,lock_timeout=5,alloc_size=6";
        assert_eq!(line(&first).split(' ').nth(1), Some(expected));
        let second = with(|image| {
            image.options.noshare = true;
            image.options.nocrc = true;
            image.options.noceph_requires_signatures = true;
            image.options.notcp_nodelay = true;
            image.options.nocephx_sign_messages = true;
        });
        let expected = "name=nodes-rw,secret=QVFEZQ==,noshare,nocrc,nocephx_require_signatures,notcp_nodelay,\
            nocephx_sign_messages";
        assert_eq!(line(&second).split(' ').nth(1), Some(expected));
    }

    #[test]
    fn contradictions_separators_and_missing_values_are_invalid() {
        let changes: [fn(&mut RbdImage); 16] = [
            |image| (image.options.ro, image.options.rw) = (true, true),
            |image| (image.options.share, image.options.noshare) = (true, true),
            |image| (image.options.crc, image.options.nocrc) = (true, true),
            |image| (image.options.tcp_nodelay, image.options.notcp_nodelay) = (true, true),
            |image| {
                image.options.ceph_requires_signatures = true;
                image.options.noceph_requires_signatures = true;
            },
            |image| {
                image.options.cephx_sign_messages = true;
                image.options.nocephx_sign_messages = true;
            },
            |image| image.options.secret = Secret::from("a,b".to_owned()),
            |image| image.options.name = "a b".into(),
            |image| image.pool = "a\nb".into(),
            |image| image.snapshot = "a b".into(),
            |image| image.options.name.clear(),
            |image| image.options.secret = Secret::default(),
            |image| image.pool.clear(),
            |image| image.image.clear(),
            |image| image.monitors.clear(),
            |image| image.options.queue_depth = -1,
        ];
        for (position, change) in changes.into_iter().enumerate() {
            let result = add_line(&with(change));
            assert!(matches!(result, Err(Error::Invalid(_))), "{position}: {result:?}");
        }
    }

    #[test]
    fn monitors_may_have_ports_and_ipv6_needs_brackets() {
        for text in ["10.0.0.1", "10.0.0.1:6789", "[2001:db8::1]", "[2001:db8::1]:3300"] {
            assert!(is_monitor(text), "{text}");
        }
        for text in [
            "",
            "mon.example",
            "10.0.0",
            "2001:db8::1",
            "[10.0.0.1]",
            "10.0.0.1:",
            "10.0.0.1,10.0.0.2",
        ] {
            assert!(!is_monitor(text), "{text}");
        }
    }

    #[test]
    fn d11_the_key_is_in_no_message_and_no_debug_output() {
        let image = with(|image| image.options.secret = Secret::from("top secret".to_owned()));
        let error = add_line(&image).unwrap_err();
        for shown in [format!("{image:?}"), format!("{error:?}"), error.to_string()] {
            assert!(!shown.contains("top"), "{shown}");
        }
        assert!(!format!("{:?}", add_line(&self::image())).contains("QVFEZQ"));
    }
}
