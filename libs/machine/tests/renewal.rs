//! Renewal of an identity on a machine that runs for days, at the time of a clock that the tests move.
//!
//! Certificates are issued by a site's authority, and verified as by the TLS of a server, at the time of that clock. The calls themselves are not
//! made over TLS: a connection is checked at the time of the system's clock only. Instead, [`Site`] answers them, for the certificate that was
//! presented last.
#![allow(clippy::unwrap_used, missing_docs)]

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use machine::identity::{IdentityIssuer, MachineIdentity};
use machine::journal::Journal;
use runtime::authority::SiteAuthority;
use runtime::{Caller, Clock, Secret};
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::sign::CertifiedKey;
use tempfile::TempDir;
use tinwright::HardwareId;
use tinwright::workflow::v1::{Holder, RedeemRequest, RedeemResponse, RenewRequest, RenewResponse};
use tokio::sync::watch;
use tonic::{Status, transport};

/// A time in whole seconds, as those of certificates are.
const START: Duration = Duration::from_secs(1_800_000_000);
const MINUTE: Duration = Duration::from_secs(60);
const BOOT_EPOCH: u64 = 7;

/// The present state of the site's servers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Servers {
    Available,
    /// Calls get no response until they are available again.
    Away,
    /// Renewals are refused.
    Refusing,
}

/// A site with one machine.
struct Site {
    authority: SiteAuthority,
    clock: Clock,
    /// The identity of the machine's token.
    caller: Caller,
    servers: watch::Sender<Servers>,
    calls: RefCell<Calls>,
    _secrets: TempDir,
    state: TempDir,
}

/// The calls that were answered, and the identity that was presented last.
#[derive(Default)]
struct Calls {
    /// The number of redeemed tokens.
    redeemed: usize,
    /// The hours after the start of the renewals.
    renewed: Vec<u64>,
    certificate: String,
    key: String,
}

impl Site {
    fn new(caller: Caller) -> Self {
        let secrets = tempfile::tempdir().unwrap();
        let clock = Clock::manual(UNIX_EPOCH + START);
        let authority = SiteAuthority::open_at(secrets.path(), clock.clone()).unwrap();
        let servers = watch::Sender::new(Servers::Available);
        let (calls, state) = (RefCell::default(), tempfile::tempdir().unwrap());
        Self { authority, clock, caller, servers, calls, _secrets: secrets, state }
    }

    /// Returns the minutes since the start.
    fn minutes(&self) -> u64 {
        (self.clock.wall().duration_since(UNIX_EPOCH).unwrap() - START).as_secs() / 60
    }

    /// Returns the caller of a connection with the presented identity, as a server of the site does.
    fn authenticate(&self) -> Result<Caller, rustls::Error> {
        let calls = self.calls.borrow();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let authority = self.authority.authority();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
        let leaf = CertificateDer::from_pem_slice(calls.certificate.as_bytes()).unwrap();
        let now = self.clock.wall().duration_since(UNIX_EPOCH).unwrap();
        let now = UnixTime::since_unix_epoch(now);
        verifier.build().unwrap().verify_client_cert(&leaf, &[], now)?;
        let key = PrivateKeyDer::from_pem_slice(calls.key.as_bytes()).unwrap();
        CertifiedKey::from_der(vec![leaf.clone()], key, &provider)?;
        Ok(Caller::in_certificate(&leaf).unwrap())
    }

    /// Checks that a server of the site accepts the machine, for the same purpose and boot epoch as at first.
    fn check_identity(&self) {
        let hour = self.minutes() / 60;
        let caller = self.authenticate().unwrap_or_else(|error| panic!("hour {hour}: {error}"));
        assert_eq!(caller, self.caller, "hour {hour}");
    }

    /// Moves the clock on for an hour. In each minute, the machine does what it has to.
    async fn pass_hour(&self) {
        for _ in 0..60 {
            self.clock.advance(MINUTE);
            // Tokio's time is paused: this ends when no other task can go on.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Starts the machine's program: returns its identity, which is that of the journal if there is one.
    async fn start_program(&self) -> (MachineIdentity, Journal) {
        let journal = Journal::open(self.state.path()).await.unwrap();
        let (token, clock) = (Secret::new("token".to_owned()), self.clock.clone());
        let holder = Holder { boot_id: "b-1".into(), process_id: "p-1".into() };
        let identity = MachineIdentity::establish(self, &journal, &token, &holder, clock).await;
        (identity.unwrap().unwrap(), journal)
    }

    /// Runs the machine's program for `hours`, each of which begins with `change`. The site accepts its identity all the time.
    async fn run_program(&self, hours: std::ops::Range<u64>, change: impl Fn(u64)) {
        let (mut identity, journal) = self.start_program().await;
        let key = self.calls.borrow().key.clone();
        let days = async {
            for hour in hours {
                change(hour);
                self.pass_hour().await;
                self.check_identity();
                assert_eq!(self.calls.borrow().key, key, "hour {hour}");
            }
        };
        tokio::select! {
            // The program starts before the first hour.
            biased;
            () = identity.renew_until_expired(self, &journal) => panic!("expired after {} min", self.minutes()),
            () = days => {}
        }
    }

    /// Checks the hours of the renewals. The token was redeemed once.
    fn check_renewals(&self, hours: &[u64]) {
        let calls = self.calls.borrow();
        assert_eq!((calls.redeemed, &calls.renewed[..]), (1, hours));
    }

    async fn until_not_away(&self) -> Servers {
        let mut servers = self.servers.subscribe();
        *servers.wait_for(|servers| *servers != Servers::Away).await.unwrap()
    }

    fn issue(&self, caller: &Caller, csr: &[u8]) -> (String, Option<prost_types::Timestamp>) {
        let (certificate, expires) = self.authority.certify(caller, csr).unwrap();
        (certificate, Some(expires.into()))
    }
}

/// As a client of the control plane, calls wait until servers are available.
impl IdentityIssuer for Site {
    async fn redeem(&self, request: RedeemRequest) -> Result<RedeemResponse, Status> {
        self.until_not_away().await;
        self.calls.borrow_mut().redeemed += 1;
        let (certificate, expire_time) = self.issue(&self.caller, &request.csr);
        let hardware_id = self.caller.subject().trim_start_matches("machine:").to_owned();
        Ok(RedeemResponse { certificate, hardware_id, expire_time, enrols: false })
    }

    async fn renew(&self, request: RenewRequest) -> Result<RenewResponse, Status> {
        if self.until_not_away().await == Servers::Refusing {
            return Err(Status::permission_denied("not now"));
        }
        let caller = self.authenticate();
        let caller = caller.map_err(|error| Status::unauthenticated(error.to_string()))?;
        self.calls.borrow_mut().renewed.push(self.minutes() / 60);
        let (certificate, expire_time) = self.issue(&caller, &request.csr);
        Ok(RenewResponse { certificate, expire_time })
    }

    fn set_identity(&self, certificate: &str, key: &str) -> Result<(), transport::Error> {
        let mut calls = self.calls.borrow_mut();
        (calls.certificate, calls.key) = (certificate.to_owned(), key.to_owned());
        Ok(())
    }
}

/// Returns the two callers whose identity is renewed.
fn callers() -> [Caller; 2] {
    let id = HardwareId::new();
    [Caller::worker(id, BOOT_EPOCH), Caller::node(id, BOOT_EPOCH)]
}

#[tokio::test(start_paused = true)]
async fn an_identity_is_renewed_after_each_half_of_its_lifetime_for_three_days() {
    for caller in callers() {
        let site = Site::new(caller);
        site.run_program(0..72, |_| {}).await;
        site.check_renewals(&[12, 24, 36, 48, 60, 72]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_identity_survives_eleven_hours_without_a_server() {
    for caller in callers() {
        let site = Site::new(caller);
        // The second renewal is due at 24 h.
        let change = |hour| match hour {
            23 => drop(site.servers.send_replace(Servers::Away)),
            34 => drop(site.servers.send_replace(Servers::Available)),
            _ => {}
        };
        site.run_program(0..72, change).await;
        site.check_renewals(&[12, 34, 46, 58, 70]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_is_repeated() {
    let [_, node] = callers();
    let site = Site::new(node);
    let change = |hour| match hour {
        11 => drop(site.servers.send_replace(Servers::Refusing)),
        20 => drop(site.servers.send_replace(Servers::Available)),
        _ => {}
    };
    site.run_program(0..36, change).await;
    site.check_renewals(&[20, 32]);
}

#[tokio::test(start_paused = true)]
async fn an_identity_ends_when_no_server_was_available_until_its_end() {
    for caller in callers() {
        let site = Site::new(caller);
        site.run_program(0..13, |_| {}).await;
        let (mut identity, journal) = site.start_program().await;
        site.servers.send_replace(Servers::Away);
        let days = async {
            for _ in 13..72 {
                site.pass_hour().await;
            }
        };
        tokio::select! {
            biased;
            () = identity.renew_until_expired(&site, &journal) => {}
            () = days => panic!("not expired"),
        }
        // It was renewed at 12 h, for 24 h.
        assert_eq!(site.minutes(), 36 * 60);
        site.clock.advance(Duration::from_secs(1));
        assert!(site.authenticate().is_err());
        site.check_renewals(&[12]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_program_goes_on_with_the_identity_of_its_journal() {
    for caller in callers() {
        let site = Site::new(caller);
        site.run_program(0..20, |_| {}).await;
        let key = site.calls.borrow().key.clone();
        site.run_program(20..44, |_| {}).await;
        assert_eq!(site.calls.borrow().key, key);
        // At 20 h there are 16 h left of the certificate of 12 h.
        site.check_renewals(&[12, 28, 40]);
    }
}
