//! The files of a door, which `tinwright identity issue --role door` writes.
//!
//! ```text
//! <secrets>/ca.pem            the authority's certificate
//! <secrets>/door.pem          the door's certificate, as a client of other processes and perhaps as a server, with door-key.pem
//! ```
//!
//! A door has no key of the site. A folder with site.key or edge.key is not a door's.

use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};

use super::site_key::{CURRENT as SITE_KEY, StoredKeys};
use super::{Error, SiteAuthority, edge, read};
use crate::secret::{KEY_BYTES, Secret, SiteKey};

/// The name of its certificate's file, without the ending.
pub(super) const NAME: &str = "door";

/// True if `folder` has the secrets of a door.
pub(super) fn is_door(folder: &Path) -> bool {
    folder.join("door.pem").exists() && !folder.join(SITE_KEY).exists() && !edge::is_edge(folder)
}

/// Returns the key of the door in `folder`: a digest of its certificate's key, which it shares with nobody. Nothing that it encrypts
/// with that is of use elsewhere.
pub(super) fn read_keys(folder: &Path) -> Result<StoredKeys, Error> {
    let own = Secret::new(read(&folder.join("door-key.pem"))?);
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(digest(&SHA256, own.expose().as_bytes()).as_ref());
    Ok(StoredKeys::new(SiteKey::new(key), None))
}

impl SiteAuthority {
    /// True if this process is a door: it has no key of the site.
    pub fn is_door(&self) -> bool {
        is_door(&self.folder)
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

    /// Issues a door of `site` into `folder`, as the command line does.
    fn issue(site: &SiteAuthority, folder: &Path) {
        let (request, key) = request_certificate().unwrap();
        let caller = Caller::new(Role::Door, "service:gateway").unwrap();
        let ends = SystemTime::now() + Duration::from_secs(86_400);
        let issued = site.certify_until(&caller, &request, ends, &["door.lab".into()]).unwrap();
        fs::write(folder.join("door.pem"), &issued.certificate).unwrap();
        fs::write(folder.join("door-key.pem"), key.expose()).unwrap();
        fs::write(folder.join("ca.pem"), site.authority()).unwrap();
    }

    #[test]
    fn a_door_opens_its_files_without_the_keys_of_the_site() {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let site = SiteAuthority::open(ours.path()).unwrap();
        issue(&site, theirs.path());
        let door = Arc::new(SiteAuthority::open(theirs.path()).unwrap());
        assert!(door.is_door() && !door.is_edge() && !site.is_door());
        assert!(!door.reload_keys().unwrap(), "the key stays the same");
        assert_ne!(door.keys().get().newest, site.keys().get().newest);
        let own = door.client_of_others(&Role::Door.into()).unwrap().certificate;
        assert_eq!(own, fs::read_to_string(theirs.path().join("door.pem")).unwrap());
        assert!(RenewableCertificate::server(door.clone(), vec![]).is_ok());
        assert!(RenewableCertificate::service(door, Role::Door.into()).is_ok());
        assert!(!theirs.path().join(SITE_KEY).exists());
    }

    #[test]
    fn incomplete_files_of_a_door_are_refused_and_make_no_new_site() {
        let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let site = SiteAuthority::open(ours.path()).unwrap();
        for missing in ["ca.pem", "door-key.pem"] {
            issue(&site, theirs.path());
            fs::remove_file(theirs.path().join(missing)).unwrap();
            assert!(matches!(SiteAuthority::open(theirs.path()), Err(Error::File { .. })));
            assert!(!theirs.path().join(SITE_KEY).exists());
        }
    }
}
