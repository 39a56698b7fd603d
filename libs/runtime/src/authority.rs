//! The site's certificate authority and the certificates that it issues.
//!
//! ```text
//! <secrets>/site.key          32 bytes: every symmetric key is derived from it (`site_key`: while another one replaces it)
//! <secrets>/ca-key.pem        the authority's key; copies for split-off edges are without it
//! <secrets>/ca.pem            its certificate; written last, so it also marks a complete folder (`ca`: while another authority
//!                             replaces it)
//! <secrets>/admin.pem         the operator's certificate, with admin-key.pem
//! <secrets>/identity.pem      verifies identity documents, with identity-key.pem (`documents`)
//! <secrets>/service.pem       identifies split-off processes to the others, with service-key.pem
//! ```
//!
//! An edge has a folder with ca.pem, edge.pem, edge-key.pem and edge.key (`edge`), a door one with ca.pem, door.pem and
//! door-key.pem, and a builder one with ca.pem, builder.pem and builder-key.pem (`keyless`).
//!
//! All files are created at the first start. Server certificates are issued at every start for the configured names, and only in
//! memory; a process without the authority's key presents `service.pem` instead. They are backdated by a day, for machines
//! whose clocks are slow. [`RenewableCertificate`] renews them while the process runs.

mod ca;
mod documents;
mod edge;
mod keyless;
mod renewal;
mod site_key;
mod trust;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rcgen::{
    CertificateParams, CertificateSigningRequestParams, DnType, ExtendedKeyUsagePurpose as Usage,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateSigningRequestDer};
use time::{Duration, OffsetDateTime};
use tokio::sync::watch;
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;

pub use self::ca::MAX_MACHINE_VALIDITY;
use self::ca::authority_params;
pub use self::renewal::RenewableCertificate;
pub use self::site_key::MAX_KEY_USE;
use self::site_key::StoredKeys;
use self::trust::Trust;
use crate::clock::Clock;
use crate::identity::{Caller, Role};
use crate::secret::{Secret, SiteKey};
use crate::serial::Serial;
use crate::site_keys::SiteKeys;

/// The time before its issue from which on a certificate is valid.
const BACKDATED: Duration = Duration::days(1);
/// The validity of the authority.
const AUTHORITY_VALIDITY: Duration = Duration::days(3650);
/// The validity of certificates that are issued at every start, or renewed at a start.
const ISSUED_VALIDITY: Duration = Duration::days(398);
/// The validity of a machine's certificate, which its worker renews.
const MACHINE_VALIDITY: Duration = Duration::days(1);
/// The longest validity of a certificate that is issued on request.
pub const MAX_CLIENT_VALIDITY: std::time::Duration = ISSUED_VALIDITY.unsigned_abs();
/// A stored certificate with less validity left is replaced at the start.
const MIN_REMAINING_VALIDITY: Duration = Duration::days(90);

/// The site's secrets cannot be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{path}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The content of a file is not valid.
    #[error("{0} is damaged")]
    Damaged(PathBuf),
    /// A certificate cannot be made.
    #[error("issuing a certificate")]
    Issue(#[from] rcgen::Error),
    /// The certificate request cannot be read, or is not signed with its own key.
    #[error("the certificate request is not usable")]
    Request(#[source] rcgen::Error),
    /// Only the process with the authority's key can issue.
    #[error("this process has no key of the site's authority: {0} is missing")]
    NoKey(PathBuf),
    /// A certificate that only the process with the authority's key renews.
    #[error(
        "{0} has ended, or is damaged: copy service.pem anew, with its key, from a process that has the authority's; issue an edge's, a door's or a builder's again"
    )]
    Ended(PathBuf),
    /// A rotation was begun before, and is not finished.
    #[error("a rotation of the {} is not finished: run `tinwright identity rotate {} --finish` first", .0, rotated(.0))]
    Rotating(&'static str),
    /// The next authority is not used yet, so the former one cannot be dropped.
    #[error(
        "the authority is prepared, and not replaced yet: run `tinwright identity rotate ca` first, or copy the new ca-key.pem and ca.pem to this server"
    )]
    NotReplaced,
    /// TLS refuses an issued certificate.
    #[error("TLS set-up")]
    Tls(#[from] rustls::Error),
    /// No randomness.
    #[error(transparent)]
    Random(#[from] crate::secret::CryptoError),
}

/// Returns the command below `identity rotate` that replaces `noun`.
fn rotated(noun: &str) -> &'static str {
    if noun == ca::NOUN { "ca" } else { "site-key" }
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct CertificateAndKey {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: Secret<String>,
}

/// A certificate for the holder of a key that this process does not have.
#[derive(Clone, Debug)]
pub struct IssuedCertificate {
    /// The certificate in PEM.
    pub certificate: String,
    /// Its serial number.
    pub serial: Serial,
    /// The name of the authority that issued it.
    pub authority: String,
    /// The end of its validity.
    pub expires: SystemTime,
}

/// The site's secrets in one folder.
#[derive(Debug)]
pub struct SiteAuthority {
    folder: PathBuf,
    trust: watch::Sender<Arc<Trust>>,
    keys: SiteKeys,
    clock: Clock,
}

impl SiteAuthority {
    /// Opens the secrets in `folder`, or creates them.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        Self::open_at(folder, Clock::system())
    }

    /// Does the same with the time of `clock`.
    pub fn open_at(folder: &Path, clock: Clock) -> Result<Self, Error> {
        let mark = folder.join("ca.pem");
        if !mark.exists() && !edge::is_edge(folder) && keyless::name(folder).is_none() {
            create_secrets(folder, &clock)?;
        }
        let keys = StoredKeys::read(folder)?.into_keys();
        let trust = watch::Sender::new(Arc::new(Trust::read(folder)?));
        Ok(Self { folder: folder.to_owned(), trust, keys, clock })
    }

    /// Issues the certificate of a server with these `names`, host names or addresses. Without the authority's key it is the
    /// service's certificate, with the names that it was issued for.
    fn server(&self, names: &[String]) -> Result<CertificateAndKey, Error> {
        match self.folder.join("ca-key.pem").exists() {
            true => self.issue("tinwright server", server_params(names)?),
            false => self.service(),
        }
    }

    /// Issues a certificate, with a key, whose holder is `caller`.
    pub fn client(&self, caller: &Caller) -> Result<CertificateAndKey, Error> {
        self.issue(&caller.to_string(), client_params(caller)?)
    }

    /// Issues a certificate in PEM for the holder of the key in `request` (PKCS#10, DER), who is `caller` for a day, and returns
    /// it with the end of its validity. Only the key of the request is used.
    pub fn certify(&self, caller: &Caller, request: &[u8]) -> Result<(String, SystemTime), Error> {
        let ends = self.now() + MACHINE_VALIDITY;
        let issued = self.certify_until(caller, request, ends.into(), &[])?;
        Ok((issued.certificate, issued.expires))
    }

    /// Does the same for a certificate that is valid until `ends`. The request may also be PEM. With `names` it is also that of a
    /// server.
    pub fn certify_until(
        &self,
        caller: &Caller,
        request: &[u8],
        ends: SystemTime,
        names: &[String],
    ) -> Result<IssuedCertificate, Error> {
        let der = CertificateSigningRequestDer::from_pem_slice(request);
        let der = der.unwrap_or_else(|_| request.into());
        let request = CertificateSigningRequestParams::from_der(&der).map_err(Error::Request)?;
        let serial = Serial::random()?;
        let mut params = client_params(caller)?;
        if !names.is_empty() {
            add_server(&mut params, names)?;
        }
        params.serial_number = Some(serial.to_bytes().into());
        // A certificate's times have no fractions of seconds (RFC 5280 §4.1.2.5).
        let ends = OffsetDateTime::from(ends);
        let ends = ends.replace_nanosecond(0).unwrap_or(ends);
        let certificate = self.sign(params, &caller.to_string(), &request.public_key, ends)?;
        let der = CertificateDer::from_pem_slice(certificate.as_bytes());
        let authority = der.map(|der| trust::issuer_name(&der)).unwrap_or_default();
        Ok(IssuedCertificate { certificate, serial, authority, expires: ends.into() })
    }

    /// Issues the operator's certificate into the folder, unless one with enough validity is there.
    pub fn ensure_admin_certificate(&self) -> Result<(), Error> {
        let admin = Caller::from(Role::Admin);
        self.ensure_certificate("admin", &admin, client_params(&admin)?)
    }

    /// Does the same for the certificate of split-off processes, which need a copy. As servers they have `names`.
    pub fn ensure_service_certificate(&self, names: &[String]) -> Result<(), Error> {
        let service = Caller::from(Role::Service);
        let mut params = client_params(&service)?;
        add_server(&mut params, names)?;
        self.ensure_certificate("service", &service, params)
    }

    /// Replaces the operator's certificate and that of split-off processes if they near their end, or are of a former authority. Theirs has
    /// `names`.
    pub fn renew_stored_certificates(&self, names: &[String]) -> Result<(), Error> {
        let soon = self.now() + MIN_REMAINING_VALIDITY;
        if !self.is_current("admin.pem", soon) {
            self.ensure_admin_certificate()?;
        }
        if !self.is_current("service.pem", soon) {
            self.ensure_service_certificate(names)?;
        }
        Ok(())
    }

    /// True if the certificate of split-off processes is missing, nears its end, or is of a former authority.
    pub fn needs_service_certificate(&self) -> bool {
        let own = format!("{}.pem", self.own_certificate());
        !self.is_current(&own, self.now() + MIN_REMAINING_VALIDITY)
    }

    /// Returns the end of the authority's own certificate.
    pub fn expire_time(&self) -> Result<SystemTime, Error> {
        end(self.trust().issuer()).ok_or_else(|| Error::Damaged(self.folder.clone()))
    }

    /// Returns the certificate of this process as a client of others. With the authority's key it is issued to `caller`; without,
    /// it is the stored one, whose caller is all services, or this door or builder.
    fn client_of_others(&self, caller: &Caller) -> Result<CertificateAndKey, Error> {
        if self.folder.join("ca-key.pem").exists() {
            self.client(caller)
        } else {
            match caller.role() {
                Role::Door => self.stored(keyless::DOOR),
                Role::Builder => self.stored(keyless::BUILDER),
                Role::Viewer
                | Role::Operator
                | Role::Admin
                | Role::Service
                | Role::Edge
                | Role::Machine(..) => self.service(),
            }
        }
    }

    /// Returns the stored certificate of split-off processes, or of this edge, door or builder.
    pub fn service(&self) -> Result<CertificateAndKey, Error> {
        self.stored(self.own_certificate())
    }

    fn stored(&self, name: &str) -> Result<CertificateAndKey, Error> {
        let path = self.folder.join(format!("{name}.pem"));
        let key = self.folder.join(format!("{name}-key.pem"));
        let (certificate, key) = (read(&path)?, Secret::new(read(&key)?));
        match lasts(&path, self.now()) {
            true => Ok(CertificateAndKey { certificate, key }),
            false => Err(Error::Ended(path)),
        }
    }

    /// True if the certificate in the file `name` is valid at `time`, and the present authority has issued it.
    fn is_current(&self, name: &str, time: OffsetDateTime) -> bool {
        let path = self.folder.join(name);
        let stored = CertificateDer::from_pem_file(&path);
        lasts(&path, time) && stored.is_ok_and(|stored| self.trust().has_issued(&stored))
    }

    fn now(&self) -> OffsetDateTime {
        self.clock.wall().into()
    }

    fn ensure_certificate(
        &self,
        name: &str,
        caller: &Caller,
        params: CertificateParams,
    ) -> Result<(), Error> {
        let path = self.folder.join(format!("{name}.pem"));
        // Of several that renew it at the same time, also in other processes, one does.
        let folder = File::open(&self.folder).map_err(file(&self.folder))?;
        folder.lock().map_err(file(&self.folder))?;
        let own = self.issue(&caller.to_string(), params)?;
        let stored = CertificateDer::from_pem_file(&path).ok();
        let has_names = stored.and_then(|stored| names(&stored))
            == names(&certificate(&own.certificate, &path)?);
        let soon = self.now() + MIN_REMAINING_VALIDITY;
        if has_names && self.is_current(&format!("{name}.pem"), soon) {
            return Ok(());
        }
        // Key and certificate are two files: between them there is no certificate, rather than one of another key.
        remove(&path)?;
        write(&self.folder.join(format!("{name}-key.pem")), own.key.expose().as_bytes())?;
        write(&path, own.certificate.as_bytes())
    }

    fn issue(&self, name: &str, params: CertificateParams) -> Result<CertificateAndKey, Error> {
        let key = KeyPair::generate()?;
        let certificate = self.sign(params, name, &key, self.now() + ISSUED_VALIDITY)?;
        Ok(CertificateAndKey { certificate, key: Secret::new(key.serialize_pem()) })
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        name: &str,
        key: &impl PublicKeyData,
        ends: OffsetDateTime,
    ) -> Result<String, Error> {
        (params.not_before, params.not_after) = (self.now() - BACKDATED, ends);
        if params.serial_number.is_none() {
            // Otherwise it would be a digest of the key: two certificates of one key would be revoked together.
            params.serial_number = Some(Serial::random()?.to_bytes().into());
        }
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(key, &self.issuer()?)?.pem())
    }
}

/// Generates a key, and a request for a certificate of it (PKCS#10, DER). The key is in PEM.
pub fn request_certificate() -> Result<(Vec<u8>, Secret<String>), Error> {
    let key = KeyPair::generate()?;
    let request = CertificateParams::default().serialize_request(&key)?;
    Ok((request.der().to_vec(), Secret::new(key.serialize_pem())))
}

fn client_params(caller: &Caller) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(caller.to_string().try_into()?)];
    params.extended_key_usages = vec![Usage::ClientAuth];
    Ok(params)
}

/// Lets the holder of a certificate be a server with `names`, too.
fn add_server(params: &mut CertificateParams, names: &[String]) -> Result<(), Error> {
    let server = server_params(names)?;
    params.subject_alt_names.extend(server.subject_alt_names);
    params.extended_key_usages.extend(server.extended_key_usages);
    Ok(())
}

fn server_params(names: &[String]) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    // Sorted: two certificates of the same names are compared as encoded.
    for name in BTreeSet::from_iter(names) {
        params.subject_alt_names.push(match name.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(name.as_str().try_into()?),
        });
    }
    params.extended_key_usages = vec![Usage::ServerAuth];
    Ok(params)
}

/// Creates the site's secrets. Files of an interrupted attempt are replaced, because they are not used yet.
fn create_secrets(folder: &Path, clock: &Clock) -> Result<(), Error> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(file(folder))?;
    write(&folder.join("site.key"), SiteKey::random()?.expose())?;
    let params = authority_params("tinwright site authority", clock.wall().into());
    let key = KeyPair::generate()?;
    write(&folder.join("ca-key.pem"), key.serialize_pem().as_bytes())?;
    write(&folder.join("ca.pem"), params.self_signed(&key)?.pem().as_bytes())
}

/// True if the certificate at `path` is there and still valid at `time`.
fn lasts(path: &Path, time: OffsetDateTime) -> bool {
    let Ok(certificate) = CertificateDer::from_pem_file(path) else { return false };
    end(&certificate).is_some_and(|end| OffsetDateTime::from(end) > time)
}

/// Returns the end of the certificate `der`; none if it cannot be parsed.
fn end(der: &[u8]) -> Option<SystemTime> {
    let (_, parsed) = x509_parser::parse_x509_certificate(der).ok()?;
    Some(parsed.validity().not_after.to_datetime().into())
}

/// Returns the encoded names in the certificate `der`; none if it cannot be parsed or has no names.
fn names(der: &[u8]) -> Option<Vec<u8>> {
    let (_, parsed) = x509_parser::parse_x509_certificate(der).ok()?;
    let names = parsed.get_extension_unique(&OID_X509_EXT_SUBJECT_ALT_NAME).ok()??;
    Some(names.value.to_vec())
}

fn certificate(pem: &str, folder: &Path) -> Result<CertificateDer<'static>, Error> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| Error::Damaged(folder.to_owned()))
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(file(path))
}

/// Writes a file that only its owner may read, whole or not at all, and durably.
fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    let draft = path.with_extension("new");
    let written = || {
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&draft, path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    };
    written().map_err(file(path))
}

/// Removes a file durably, if it is there.
fn remove(path: &Path) -> Result<(), Error> {
    let removed = || match fs::remove_file(path) {
        Ok(()) => path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed().map_err(file(path))
}

fn file(path: &Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    |source| Error::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
    }

    #[test]
    fn a_site_is_made_once_and_only_its_owner_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("secrets");
        let first = SiteAuthority::open(&folder).unwrap();
        let again = SiteAuthority::open(&folder).unwrap();
        assert_eq!(first.authority(), again.authority());
        assert_eq!(first.keys().get(), again.keys().get());
        for name in ["site.key", "ca-key.pem", "ca.pem"] {
            let mode = fs::metadata(folder.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{name}");
        }
    }

    #[test]
    fn a_client_certificate_carries_its_role() {
        let folder = tempfile::tempdir().unwrap();
        let site = SiteAuthority::open(folder.path()).unwrap();
        let anna = Caller::new(Role::Viewer, "person:anna").unwrap();
        let viewer = site.client(&anna).unwrap();
        assert_eq!(Caller::in_certificate(&der(&viewer.certificate)), Some(anna));
        assert_eq!(Caller::in_certificate(&der(&site.authority())), None);
    }

    #[test]
    fn a_machines_certificate_has_its_role_and_only_the_key_of_the_request() {
        let folder = tempfile::tempdir().unwrap();
        let site = SiteAuthority::open(folder.path()).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut greedy = CertificateParams::default();
        greedy.subject_alt_names = vec![SanType::URI("tinwright:admin".try_into().unwrap())];
        let request = greedy.serialize_request(&key).unwrap();
        let caller = Role::worker(tinwright::HardwareId::new()).into();
        let (pem, ends) = site.certify(&caller, request.der()).unwrap();
        assert_eq!(Caller::in_certificate(&der(&pem)).as_ref(), Some(&caller));
        let left = ends.duration_since(SystemTime::now()).unwrap();
        assert!(left <= std::time::Duration::from_secs(24 * 60 * 60));
        assert!(site.certify(&caller, b"no request").is_err());
    }

    #[test]
    fn every_certificate_has_a_serial_number_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let site = SiteAuthority::open(folder.path()).unwrap();
        let (request, _) = request_certificate().unwrap();
        let ends = SystemTime::now() + MAX_CLIENT_VALIDITY;
        let issue = || site.certify_until(&Role::Viewer.into(), &request, ends, &[]).unwrap();
        let (first, second) = (issue(), issue());
        assert_ne!(first.serial, second.serial);
        for issued in [first, second] {
            let der = der(&issued.certificate);
            assert_eq!(Serial::in_certificate(&der).as_ref(), Some(&issued.serial));
            let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
            let end = SystemTime::from(parsed.validity().not_after.to_datetime());
            assert_eq!(end, issued.expires);
        }
        let stored = [site.client(&Role::Admin.into()), site.client(&Role::Admin.into())];
        let serials = stored.map(|it| Serial::in_certificate(&der(&it.unwrap().certificate)));
        assert!(serials[0].is_some() && serials[0] != serials[1]);
    }

    #[test]
    fn a_certificate_request_may_be_pem() {
        let folder = tempfile::tempdir().unwrap();
        let site = SiteAuthority::open(folder.path()).unwrap();
        let key = KeyPair::generate().unwrap();
        let request = CertificateParams::default().serialize_request(&key).unwrap();
        let (pem, ends) = (request.pem().unwrap(), SystemTime::now() + MAX_CLIENT_VALIDITY);
        assert!(site.certify_until(&Role::Viewer.into(), pem.as_bytes(), ends, &[]).is_ok());
    }

    #[test]
    fn the_operators_certificate_is_kept_until_it_nears_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let site = SiteAuthority::open(folder.path()).unwrap();
        site.ensure_admin_certificate().unwrap();
        let first = read(&folder.path().join("admin.pem")).unwrap();
        site.ensure_admin_certificate().unwrap();
        assert_eq!(read(&folder.path().join("admin.pem")).unwrap(), first);
        let end = OffsetDateTime::now_utc() + ISSUED_VALIDITY;
        assert!(lasts(&folder.path().join("admin.pem"), end - Duration::days(1)));
        assert!(!lasts(&folder.path().join("admin.pem"), end + Duration::days(1)));
    }

    #[test]
    fn a_copy_without_the_authoritys_key_shows_the_services_certificate_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let site = SiteAuthority::open(folder.path()).unwrap();
        assert!(matches!(site.service(), Err(Error::File { .. })));
        site.ensure_service_certificate(&["edge.lab".into(), "127.0.0.1".into()]).unwrap();
        fs::remove_file(folder.path().join("ca-key.pem")).unwrap();
        let own = site.service().unwrap();
        assert_eq!(Caller::in_certificate(&der(&own.certificate)), Some(Role::Service.into()));
        assert_eq!(site.server(&[]).unwrap().certificate, own.certificate);
        fs::write(folder.path().join("service.pem"), "").unwrap();
        assert!(matches!(site.service(), Err(Error::Ended(_))));
    }

    #[test]
    fn the_services_certificate_is_made_anew_where_its_names_are_not_those_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let site = SiteAuthority::open(folder.path()).unwrap();
        let kept = |names: &[&str]| {
            site.ensure_service_certificate(
                &names.iter().map(ToString::to_string).collect::<Vec<_>>(),
            )
            .unwrap();
            read(&folder.path().join("service.pem")).unwrap()
        };
        let first = kept(&["edge.lab", "192.0.2.1", "::1"]);
        assert_eq!(kept(&["::1", "edge.lab", "192.0.2.1"]), first);
        assert_ne!(kept(&["edge.lab", "192.0.2.2", "::1"]), first);
    }

    #[test]
    fn without_the_authoritys_key_nothing_is_issued_and_a_damaged_site_is_not_made_anew() {
        let folder = tempfile::tempdir().unwrap();
        let site = SiteAuthority::open(folder.path()).unwrap();
        fs::remove_file(folder.path().join("ca-key.pem")).unwrap();
        assert!(matches!(site.client(&Role::Admin.into()), Err(Error::NoKey(_))));
        fs::write(folder.path().join("site.key"), b"short").unwrap();
        assert!(matches!(SiteAuthority::open(folder.path()), Err(Error::Damaged(_))));
    }
}
