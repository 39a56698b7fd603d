//! Directories of NFS servers, mounted without mount.nfs(8): the options of nfs(5) go to the kernel, and those that the helper
//! program would add are added here.

use std::{
    ffi::CString,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
};

use rustix::{io::Errno, mount::MountFlags};

use crate::{Deadline, Error, Result, bounded::bounded, host_name, mount_point};

/// Version of the protocol if none is given.
pub const DEFAULT_VERSION: &str = "4.2";
/// RFC 7530 §3.1.
const NFS_PORT: u16 = 2049;
/// Options that are added here, and that a caller cannot give.
const ADDED_OPTIONS: [&str; 4] = ["addr", "clientaddr", "vers", "nfsvers"];

/// A directory of an NFS server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NfsMount {
    /// Name or address of the server.
    pub host: String,
    /// Path of the directory there.
    pub path: String,
    /// Refuses writes.
    pub read_only: bool,
    /// Version of the protocol, such as `4.2`.
    pub version: String,
    /// Options of nfs(5), one each.
    pub options: Vec<String>,
}

/// Mounts the directory at `target`.
///
/// A server that does not answer holds up a thread of its own, which stays until the kernel gives up; see the option `soft` of
/// nfs(5). A mount that is complete only after the deadline is undone.
///
/// # Errors
/// [`Error::Invalid`] for a host without an address, a path, a version or an option that cannot be one; [`Error::Missing`] if the
/// kernel has no NFS client or not this version; [`Error::Failed`] if the server refuses or does not answer.
pub fn mount(nfs: &NfsMount, target: &Path, deadline: Deadline) -> Result<()> {
    check(nfs)?;
    let server = host_name::resolve(&nfs.host, NFS_PORT, deadline)?;
    let client = local_address(server)?;
    let data = CString::new(mount_data(nfs, server.ip(), client))
        .map_err(|_| Error::Invalid("NFS option has a zero byte".into()))?;
    let source = source(nfs);
    let flags = if nfs.read_only { MountFlags::RDONLY } else { MountFlags::empty() };
    let step = format!("mount {source}");
    let target = target.to_owned();
    let work = {
        let step = step.clone();
        move || {
            rustix::mount::mount(&source, &target, "nfs", flags, data.as_c_str())
                .map_err(|errno| refused(step, errno))?;
            Ok(target)
        }
    };
    bounded(&step, deadline, work, mount_point::undo).map(drop)
}

fn check(nfs: &NfsMount) -> Result<()> {
    let NfsMount { host: _, path, read_only: _, version, options } = nfs;
    if path.is_empty() || path.contains('\0') {
        return Err(Error::Invalid(format!("{path:?} is not a path of an NFS server")));
    }
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    if !is_number(major) || !is_number(minor) {
        return Err(Error::Invalid(format!("{version:?} is not a version of NFS")));
    }
    for option in options {
        let (name, _) = option.split_once('=').unwrap_or((option, ""));
        if option.is_empty() || option.contains([',', '\0']) || ADDED_OPTIONS.contains(&name) {
            return Err(Error::Invalid(format!("NFS option {option:?} is not accepted")));
        }
    }
    Ok(())
}

/// Returns the source as the kernel parses it: an IPv6 address needs brackets before the colon.
fn source(nfs: &NfsMount) -> String {
    let NfsMount { host, path, .. } = nfs;
    if host.contains(':') && !host.starts_with('[') {
        return format!("[{host}]:{path}");
    }
    format!("{host}:{path}")
}

fn mount_data(nfs: &NfsMount, server: IpAddr, client: IpAddr) -> String {
    let mut options = nfs.options.clone();
    options.push(format!("addr={server}"));
    options.push(format!("clientaddr={client}"));
    options.push(format!("vers={}", nfs.version));
    options.join(",")
}

/// Returns the address from which the host reaches the server, to which an NFSv4.0 server connects for callbacks. Nothing is sent.
fn local_address(server: SocketAddr) -> Result<IpAddr> {
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    let local = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(server)?;
        socket.local_addr()
    });
    local
        .map(|address| address.ip())
        .map_err(|e| Error::failed(format!("find a route to {server}"), e))
}

fn refused(step: String, errno: Errno) -> Error {
    match errno {
        Errno::NODEV => Error::Missing("the kernel has no file system nfs".into()),
        Errno::PROTONOSUPPORT => Error::Missing(format!("{step}: no support for this version")),
        other => Error::failed(step, other),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn export(host: &str) -> NfsMount {
        NfsMount {
            host: host.into(),
            path: "/exp".into(),
            read_only: true,
            version: DEFAULT_VERSION.into(),
            options: vec!["hard".into(), "nconnect=4".into()],
        }
    }

    #[test]
    fn d26_the_clients_address_is_ours_and_the_options_stay_as_they_were() {
        let nfs = export("127.0.0.1");
        let client = local_address("127.0.0.9:2049".parse().unwrap()).unwrap();
        assert_eq!(client, IpAddr::from([127, 0, 0, 1]));
        let data = mount_data(&nfs, IpAddr::from([127, 0, 0, 9]), client);
        assert_eq!(data, "hard,nconnect=4,addr=127.0.0.9,clientaddr=127.0.0.1,vers=4.2");
        assert_eq!(nfs, export("127.0.0.1"));
    }

    #[test]
    fn an_address_of_ipv6_is_in_brackets_in_the_source_only() {
        assert_eq!(source(&export("2001:db8::1")), "[2001:db8::1]:/exp");
        assert_eq!(source(&export("[2001:db8::1]")), "[2001:db8::1]:/exp");
        assert_eq!(source(&export("nas1.example")), "nas1.example:/exp");
    }

    #[test]
    fn options_that_are_added_here_or_hide_others_are_invalid() {
        for option in
            ["addr=1.2.3.4", "clientaddr=1.2.3.4", "vers=3", "nfsvers=4", "hard,vers=3", ""]
        {
            let nfs = NfsMount { options: vec![option.into()], ..export("127.0.0.1") };
            assert!(matches!(check(&nfs), Err(Error::Invalid(_))), "{option}");
        }
        for version in ["", "4.", "four", "4.2,soft", "4.2.1"] {
            let nfs = NfsMount { version: version.into(), ..export("127.0.0.1") };
            assert!(matches!(check(&nfs), Err(Error::Invalid(_))), "{version}");
        }
        assert_eq!(check(&export("127.0.0.1")), Ok(()));
    }

    #[test]
    fn a_host_without_an_address_is_invalid() {
        let limit = Deadline::after(Duration::from_secs(60));
        let error = mount(&export("a..b"), Path::new("/nowhere"), limit).unwrap_err();
        assert_eq!(error, Error::Invalid("host a..b has no address".into()));
    }
}
