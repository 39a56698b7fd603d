//! The files of an edge, which `tinwright identity issue --role edge` writes.
//!
//! ```text
//! <secrets>/ca.pem            the authority's certificate
//! <secrets>/edge.pem          the edge's certificate, as a client of other processes and as a server, with edge-key.pem
//! <secrets>/edge.key          its name and key, in place of site.key
//! <secrets>/edge.key.old      the former one: accepted still, if the edge was issued again
//! ```
//!
//! A folder with site.key is not an edge's.

use std::path::Path;

use super::site_key::{CURRENT as SITE_KEY, StoredKeys};
use super::{Error, IssuedCertificate, SiteAuthority, keyless, read};
use crate::edge::EdgeName;
use crate::secret::{Secret, SiteKey};

const CURRENT: &str = "edge.key";
const OLD: &str = "edge.key.old";

/// True if `folder` has the secrets of an edge.
pub(super) fn is_edge(folder: &Path) -> bool {
    folder.join(CURRENT).exists() && !folder.join(SITE_KEY).exists()
}

/// Reads the keys of the edge in `folder`.
pub(super) fn read_keys(folder: &Path) -> Result<StoredKeys, Error> {
    let key = |name: &str| {
        let path = folder.join(name);
        SiteKey::from_edge_file(&read(&path)?).ok_or(Error::Damaged(path))
    };
    let old = if folder.join(OLD).exists() { Some(key(OLD)?) } else { None };
    Ok(StoredKeys::new(key(CURRENT)?, old))
}

impl SiteAuthority {
    /// True if this process is an edge: it has a key of its own, and not that of the site.
    pub fn is_edge(&self) -> bool {
        self.keys.get().newest.edge().is_some()
    }

    /// Returns the content of the file `edge.key` for the edge with the certificate `issued`.
    pub fn edge_key(&self, issued: &IssuedCertificate) -> Result<Secret<String>, Error> {
        let edge = EdgeName::new(issued.serial.clone(), issued.expires);
        Ok(self.keys.get().newest.edge_file(&edge)?)
    }

    /// Returns the id of the site key of which [`edge_key`](Self::edge_key) derives keys.
    pub fn edge_key_id(&self) -> Result<String, Error> {
        Ok(self.keys.get().newest.id_for_edges()?)
    }

    /// Returns the name of the file, without its ending, of the certificate that this process has without the authority's key.
    pub(super) fn own_certificate(&self) -> &'static str {
        if self.is_edge() { "edge" } else { keyless::name(&self.folder).unwrap_or("service") }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::authority::{RenewableCertificate, request_certificate};
    use crate::boot_token::{BootTokens, InvalidToken, Purpose};
    use crate::identity::{Caller, Role};
    use crate::revocation::Revocations;

    const NAME: &str = "edge.lab";

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    /// Issues an edge of `site` into `folder`, as the command line does.
    fn issue(site: &SiteAuthority, folder: &Path) {
        let (request, key) = request_certificate().unwrap();
        let caller = Caller::new(Role::Edge, "service:rack-7").unwrap();
        let ends = SystemTime::now() + Duration::from_secs(86_400);
        let issued = site.certify_until(&caller, &request, ends, &[NAME.into()]).unwrap();
        fs::write(folder.join("edge.pem"), &issued.certificate).unwrap();
        fs::write(folder.join("edge-key.pem"), key.expose()).unwrap();
        fs::write(folder.join(CURRENT), site.edge_key(&issued).unwrap().expose()).unwrap();
        fs::write(folder.join("ca.pem"), site.authority()).unwrap();
    }

    fn token(site: &SiteAuthority) -> String {
        let tokens = BootTokens::new(site.keys()).unwrap();
        let (machine, now) = (tinwright::HardwareId::new(), SystemTime::now());
        tokens.mint(Purpose::Identity, machine, 0, [192, 0, 2, 7].into(), now).unwrap()
    }

    #[test]
    fn an_edge_opens_its_files_without_the_keys_of_the_site() {
        let (ours, theirs) = (folder(), folder());
        let site = SiteAuthority::open(ours.path()).unwrap();
        issue(&site, theirs.path());
        let edge = Arc::new(SiteAuthority::open(theirs.path()).unwrap());
        assert!(edge.is_edge() && !site.is_edge());
        assert!(RenewableCertificate::server(edge.clone(), vec![]).is_ok());
        let own = edge.service().unwrap().certificate;
        assert!(own.starts_with("-----BEGIN CERTIFICATE-----"));
        for file in fs::read_dir(theirs.path()).unwrap().map(Result::unwrap) {
            let bytes = fs::read(file.path()).unwrap();
            let own = site.keys().get().newest.expose().to_vec();
            assert!(!bytes.windows(own.len()).any(|part| part == own), "{file:?}");
        }
        let accepting = BootTokens::new(site.keys()).unwrap();
        let accepting = accepting.accepting_edges(Revocations::default());
        let now = SystemTime::now();
        assert!(accepting.open(Purpose::Identity, &token(&edge), now).is_ok());
    }

    #[test]
    fn an_edge_that_is_issued_again_takes_its_key_while_it_runs() {
        let (ours, theirs) = (folder(), folder());
        let site = SiteAuthority::open(ours.path()).unwrap();
        issue(&site, theirs.path());
        let edge = SiteAuthority::open(theirs.path()).unwrap();
        let (tokens, before) = (BootTokens::new(edge.keys()).unwrap(), token(&edge));
        let valid = || tokens.open(Purpose::Identity, &before, SystemTime::now()).map(drop);
        fs::copy(theirs.path().join(CURRENT), theirs.path().join(OLD)).unwrap();
        issue(&site, theirs.path());
        assert!(edge.reload_keys().unwrap());
        assert_ne!(before.split_once('.').unwrap().0, token(&edge).split_once('.').unwrap().0);
        assert_eq!(valid(), Ok(()));
        fs::remove_file(theirs.path().join(OLD)).unwrap();
        assert!(edge.reload_keys().unwrap());
        assert_eq!(valid(), Err(InvalidToken::Foreign));
    }

    #[test]
    fn incomplete_files_of_an_edge_are_refused_and_make_no_new_site() {
        let (ours, theirs) = (folder(), folder());
        let site = SiteAuthority::open(ours.path()).unwrap();
        issue(&site, theirs.path());
        fs::remove_file(theirs.path().join("ca.pem")).unwrap();
        assert!(matches!(SiteAuthority::open(theirs.path()), Err(Error::File { .. })));
        assert!(!theirs.path().join(SITE_KEY).exists());
        issue(&site, theirs.path());
        fs::write(theirs.path().join(CURRENT), "4a-1.").unwrap();
        assert!(matches!(SiteAuthority::open(theirs.path()), Err(Error::Damaged(_))));
    }
}
