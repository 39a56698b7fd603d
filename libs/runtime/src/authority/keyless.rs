//! The files of a door and of a builder, which `tinwright identity issue` writes for these roles.
//!
//! ```text
//! <secrets>/ca.pem            the authority's certificate
//! <secrets>/door.pem          the door's certificate, as a client of other processes and perhaps as a server, with door-key.pem
//! <secrets>/builder.pem       that of a builder, with builder-key.pem
//! ```
//!
//! Neither has a key of the site. A folder with site.key or edge.key is not theirs.

use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};

use super::site_key::{CURRENT as SITE_KEY, StoredKeys};
use super::{Error, SiteAuthority, edge, read};
use crate::secret::{KEY_BYTES, Secret, SiteKey};

/// The name of a door's certificate file, without the ending.
pub(super) const DOOR: &str = "door";
/// The name of a builder's.
pub(super) const BUILDER: &str = "builder";

/// Returns the name of the certificate's file if `folder` has the secrets of a door or of a builder.
pub(super) fn name(folder: &Path) -> Option<&'static str> {
    if folder.join(SITE_KEY).exists() || edge::is_edge(folder) {
        return None;
    }
    [DOOR, BUILDER].into_iter().find(|name| folder.join(format!("{name}.pem")).exists())
}

/// Returns the key of the process in `folder` with the certificate `name`: a digest of the certificate's key, which it shares with
/// nobody. Nothing that it encrypts with that is of use elsewhere.
pub(super) fn read_keys(folder: &Path, name: &str) -> Result<StoredKeys, Error> {
    let own = Secret::new(read(&folder.join(format!("{name}-key.pem")))?);
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(digest(&SHA256, own.expose().as_bytes()).as_ref());
    Ok(StoredKeys::new(SiteKey::new(key), None))
}

impl SiteAuthority {
    /// True if this process is a door: it has no key of the site.
    pub fn is_door(&self) -> bool {
        name(&self.folder) == Some(DOOR)
    }

    /// True if this process is a builder without a key of the site.
    pub fn is_builder(&self) -> bool {
        name(&self.folder) == Some(BUILDER)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::authority::{RenewableCertificate, request_certificate};
    use crate::identity::{Caller, Role};

    /// The role of each process without a key of the site, the subject of its certificate, and the name of its files.
    const PROCESSES: [(Role, &str, &str); 2] =
        [(Role::Door, "service:gateway", DOOR), (Role::Builder, "service:builder", BUILDER)];

    /// Issues the secrets of a process of `site` into `folder`, as the command line does.
    fn issue(site: &SiteAuthority, folder: &Path, (role, subject, name): (Role, &str, &str)) {
        let (request, key) = request_certificate().unwrap();
        let caller = Caller::new(role, subject).unwrap();
        let ends = SystemTime::now() + Duration::from_secs(86_400);
        let issued = site.certify_until(&caller, &request, ends, &["own.lab".into()]).unwrap();
        fs::write(folder.join(format!("{name}.pem")), &issued.certificate).unwrap();
        fs::write(folder.join(format!("{name}-key.pem")), key.expose()).unwrap();
        fs::write(folder.join("ca.pem"), site.authority()).unwrap();
    }

    #[test]
    fn a_door_and_a_builder_open_their_files_without_the_keys_of_the_site() {
        for (role, subject, name) in PROCESSES {
            let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let site = SiteAuthority::open(ours.path()).unwrap();
            issue(&site, theirs.path(), (role, subject, name));
            let own = Arc::new(SiteAuthority::open(theirs.path()).unwrap());
            assert_eq!((own.is_door(), own.is_builder()), (name == DOOR, name == BUILDER));
            assert!(!own.is_edge() && !site.is_door() && !site.is_builder());
            assert!(!own.reload_keys().unwrap(), "the key stays the same");
            assert_ne!(own.keys().get().newest, site.keys().get().newest);
            let certificate = own.client_of_others(&role.into()).unwrap().certificate;
            let stored = fs::read_to_string(theirs.path().join(format!("{name}.pem"))).unwrap();
            assert_eq!(certificate, stored);
            assert!(RenewableCertificate::server(own.clone(), vec![]).is_ok());
            assert!(RenewableCertificate::service(own, role.into()).is_ok());
            assert!(!theirs.path().join(SITE_KEY).exists());
        }
    }

    #[test]
    fn incomplete_files_are_refused_and_make_no_new_site() {
        for process in PROCESSES {
            let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let site = SiteAuthority::open(ours.path()).unwrap();
            for missing in ["ca.pem".to_owned(), format!("{}-key.pem", process.2)] {
                issue(&site, theirs.path(), process);
                fs::remove_file(theirs.path().join(missing)).unwrap();
                assert!(matches!(SiteAuthority::open(theirs.path()), Err(Error::File { .. })));
                assert!(!theirs.path().join(SITE_KEY).exists());
            }
        }
    }
}
