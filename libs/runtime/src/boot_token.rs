//! Tokens in boot scripts, which prove for which machine a script was rendered.
//!
//! A token is a nonce sealed with the site's key over purpose, hardware, boot epoch, source address and expiry, so that nothing has to be
//! stored to serve one, and any process with the key can open it. It is written in URL-safe letters:
//!
//! ```text
//! base64url( nonce (12) ‖ AES-256-GCM( expiry, u64 ‖ boot epoch, u64 ‖ hardware id (16) ‖ address (4 or 16) ) )
//!
//! purpose: associated data
//! ```
//!
//! The token of a machine without a record says who may enrol in place of the machine and its epoch ([`EnrolmentClaims`]):
//!
//! ```text
//! AES-256-GCM( expiry, u64 ‖ enrolment id (16) ‖ UUID (16) ‖ MAC (6) ‖ prefix length (1) ‖ address (4 or 16) )
//! ```
//!
//! The token of an outside platform's private files names the instance, too ([`PlatformFileClaims`]):
//!
//! ```text
//! AES-256-GCM( expiry, u64 ‖ generation, i64 ‖ hardware id (16) ‖ address as IPv6 (16) ‖ instance id )
//! ```
//!
//! An edge (module [`edge`](crate::edge)) makes tokens with its own key, and writes its name and a dot before them. A process with the
//! site's key derives that key from the name; to another edge such a token is foreign.
//!
//! The nonce identifies the token: a service that accepts a token once stores its nonce.

use std::net::IpAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::aead::NONCE_LEN;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tinwright::{HardwareId, Mac};

use crate::edge::EdgeName;
use crate::revocation::Revocations;
use crate::seal::KeySeal;
use crate::secret::{CryptoError, Secret, SiteKey};
use crate::site_keys::{Derived, SiteKeys};

/// The kind of secrets that tokens are.
const KIND: &str = "boot token";
/// Between the name of an edge and its token.
const SEPARATOR: char = '.';

/// The use of a token. Its name is sealed into the token as its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Purpose {
    /// Downloading the files of one boot.
    Files,
    /// Getting a certificate for the machine's worker, once.
    Identity,
    /// Getting a certificate for the agent of a node, once.
    Node,
    /// Getting a certificate with which a machine without a record reports itself, once.
    Enrol,
    /// Downloading the private files of an outside platform.
    PlatformFiles,
}

/// The validity of a token for a platform's private files: as long as a slow machine loads a large system.
pub const PLATFORM_FILES_LIFETIME: Duration = Duration::from_secs(60 * 60);

/// The validity of a token.
pub const LIFETIME: Duration = Duration::from_secs(15 * 60);

/// The content of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The machine it was given to.
    pub hardware: HardwareId,
    /// The boot epoch of the machine, as far as the boot server knew it; 0 if it did not.
    pub boot_epoch: u64,
    /// The address it was given to.
    pub address: IpAddr,
    /// The end of its validity, in seconds since 1970.
    pub expiry: u64,
}

/// The content of the token of a machine without a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnrolmentClaims {
    /// The id of the enrolment, new in each boot script. The identity and the record get it.
    pub id: HardwareId,
    /// The SMBIOS UUID that the machine presented.
    pub uuid: [u8; 16],
    /// The interface that asked for the boot.
    pub mac: Mac,
    /// The address it was given to.
    pub address: IpAddr,
    /// Bits of the prefix of the network of that address.
    pub prefix_length: u8,
    /// The end of its validity, in seconds since 1970.
    pub expiry: u64,
}

/// The content of the token of a platform's private files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformFileClaims {
    /// The machine that it was given to.
    pub hardware: HardwareId,
    /// The instance on that machine, whose boot gate was open.
    pub instance: String,
    /// The generation of the instance.
    pub generation: i64,
    /// The address that it was given to.
    pub address: IpAddr,
    /// The end of its validity, in seconds since 1970.
    pub expiry: u64,
}

/// A valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerifiedToken<C = Claims> {
    /// Its content.
    pub claims: C,
    /// Its nonce, which no other token has.
    pub nonce: [u8; NONCE_LEN],
}

/// The token is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// It was not made by this site, or for another purpose.
    #[error("it is not a token of this site for this purpose")]
    Foreign,
    /// Its validity has ended, or that of the edge that made it.
    #[error("it has expired")]
    Expired,
    /// The certificate of the edge that made it is revoked.
    #[error("the edge that made it is revoked")]
    Revoked,
}

/// Makes and verifies tokens.
#[derive(Debug)]
pub struct BootTokens {
    keys: Derived<TokenKey>,
    /// The edges whose tokens are refused; none if those of all edges but this process are.
    revocations: Option<Revocations>,
}

/// A key of the site, or of the edge that this process is.
#[derive(Debug)]
struct TokenKey {
    key: SiteKey,
    seal: KeySeal,
}

impl TokenKey {
    fn new(key: &SiteKey) -> Result<Self, CryptoError> {
        Ok(Self { key: key.clone(), seal: KeySeal::new(key, KIND)? })
    }

    /// Opens `sealed`, which `edge` made, or a process with the site's key.
    fn open(
        &self,
        purpose: Purpose,
        edge: Option<&EdgeName>,
        sealed: &[u8],
    ) -> Option<Secret<Vec<u8>>> {
        let opened = match (edge, self.key.edge()) {
            (edge, own) if edge == own => self.seal.open(purpose.into(), sealed),
            (Some(edge), None) => {
                let key = self.key.for_edge(edge).and_then(|key| KeySeal::new(&key, KIND));
                key.ok()?.open(purpose.into(), sealed)
            }
            (_, _) => return None,
        };
        opened.ok()
    }
}

impl BootTokens {
    /// Derives the keys for tokens from those of `site`. Tokens of edges other than this process are foreign.
    pub fn new(site: impl Into<SiteKeys>) -> Result<Self, CryptoError> {
        Ok(Self { keys: Derived::new(site, TokenKey::new)?, revocations: None })
    }

    /// Also accepts the tokens of edges whose certificates are not in `revocations`.
    pub fn accepting_edges(self, revocations: Revocations) -> Self {
        Self { revocations: Some(revocations), ..self }
    }

    /// Makes a token for `hardware` at `address` in the boot epoch `boot_epoch`, valid for [`LIFETIME`] from `now`.
    pub fn mint(
        &self,
        purpose: Purpose,
        hardware: HardwareId,
        boot_epoch: u64,
        address: IpAddr,
        now: SystemTime,
    ) -> Result<String, CryptoError> {
        let expiry = seconds(now).saturating_add(LIFETIME.as_secs());
        self.seal(purpose, &Claims { hardware, boot_epoch, address, expiry }.encode())
    }

    /// Makes a token for a machine without a record, valid for [`LIFETIME`] from `now`, whatever its expiry says.
    pub fn mint_for_enrolment(
        &self,
        claims: EnrolmentClaims,
        now: SystemTime,
    ) -> Result<String, CryptoError> {
        let expiry = seconds(now).saturating_add(LIFETIME.as_secs());
        self.seal(Purpose::Enrol, &EnrolmentClaims { expiry, ..claims }.encode())
    }

    /// Makes a token for the private files of a platform, valid for [`PLATFORM_FILES_LIFETIME`] from `now`, whatever its expiry says.
    pub fn mint_for_platform_files(
        &self,
        claims: PlatformFileClaims,
        now: SystemTime,
    ) -> Result<String, CryptoError> {
        let expiry = seconds(now).saturating_add(PLATFORM_FILES_LIFETIME.as_secs());
        self.seal(Purpose::PlatformFiles, &PlatformFileClaims { expiry, ..claims }.encode())
    }

    fn seal(&self, purpose: Purpose, plain: &[u8]) -> Result<String, CryptoError> {
        let keys = self.keys.get();
        let own = &keys.newest;
        let token = URL_SAFE_NO_PAD.encode(own.seal.seal(purpose.into(), plain)?);
        Ok(match own.key.edge() {
            Some(edge) => format!("{edge}{SEPARATOR}{token}"),
            None => token,
        })
    }

    /// Returns the content of `token` if it is valid for `purpose` at `now`.
    pub fn open(
        &self,
        purpose: Purpose,
        token: &str,
        now: SystemTime,
    ) -> Result<VerifiedToken, InvalidToken> {
        self.verify(purpose, token, now, Claims::decode, |claims| claims.expiry)
    }

    /// Returns the content of the token of a machine without a record if it is valid at `now`.
    pub fn open_for_enrolment(
        &self,
        token: &str,
        now: SystemTime,
    ) -> Result<VerifiedToken<EnrolmentClaims>, InvalidToken> {
        self.verify(Purpose::Enrol, token, now, EnrolmentClaims::decode, |claims| claims.expiry)
    }

    /// Returns the content of the token of a platform's private files if it is valid at `now`.
    pub fn open_for_platform_files(
        &self,
        token: &str,
        now: SystemTime,
    ) -> Result<PlatformFileClaims, InvalidToken> {
        let (purpose, decode) = (Purpose::PlatformFiles, PlatformFileClaims::decode);
        let verified = self.verify(purpose, token, now, decode, |claims| claims.expiry);
        verified.map(|verified| verified.claims)
    }

    /// Returns what `decode` makes of the content of `token`, if that is valid for `purpose` at `now`.
    fn verify<C>(
        &self,
        purpose: Purpose,
        token: &str,
        now: SystemTime,
        decode: fn(&[u8]) -> Option<C>,
        expiry: fn(&C) -> u64,
    ) -> Result<VerifiedToken<C>, InvalidToken> {
        let (edge, token) = match token.split_once(SEPARATOR) {
            Some((edge, token)) => (Some(edge.parse().map_err(|_| InvalidToken::Foreign)?), token),
            None => (None, token),
        };
        let raw = URL_SAFE_NO_PAD.decode(token).map_err(|_| InvalidToken::Foreign)?;
        let nonce = *raw.first_chunk().ok_or(InvalidToken::Foreign)?;
        let keys = self.keys.get();
        let opened = keys.all().find_map(|key| key.open(purpose, edge.as_ref(), &raw));
        let opened = opened.ok_or(InvalidToken::Foreign)?;
        if let Some(edge) = edge.filter(|it| keys.all().all(|own| own.key.edge() != Some(it))) {
            self.check_edge(&edge, now)?;
        }
        let claims = decode(opened.expose()).ok_or(InvalidToken::Foreign)?;
        match expiry(&claims) > seconds(now) {
            true => Ok(VerifiedToken { claims, nonce }),
            false => Err(InvalidToken::Expired),
        }
    }

    /// Refuses what `edge`, another process, made if its certificate is not valid.
    fn check_edge(&self, edge: &EdgeName, now: SystemTime) -> Result<(), InvalidToken> {
        let revocations = self.revocations.as_ref().ok_or(InvalidToken::Foreign)?;
        if revocations.contains(&edge.certificate().identity()) {
            return Err(InvalidToken::Revoked);
        }
        if edge.has_ended(now) { Err(InvalidToken::Expired) } else { Ok(()) }
    }
}

impl Claims {
    fn encode(&self) -> Vec<u8> {
        let (expiry, epoch) = (self.expiry.to_be_bytes(), self.boot_epoch.to_be_bytes());
        let hardware = self.hardware.to_bytes();
        match self.address {
            IpAddr::V4(address) => [&expiry[..], &epoch, &hardware, &address.octets()].concat(),
            IpAddr::V6(address) => [&expiry[..], &epoch, &hardware, &address.octets()].concat(),
        }
    }

    fn decode(plain: &[u8]) -> Option<Self> {
        let (expiry, rest) = plain.split_first_chunk()?;
        let (boot_epoch, rest) = rest.split_first_chunk()?;
        let (hardware, rest) = rest.split_first_chunk()?;
        Some(Self {
            hardware: HardwareId::from_bytes(*hardware),
            boot_epoch: u64::from_be_bytes(*boot_epoch),
            address: address(rest)?,
            expiry: u64::from_be_bytes(*expiry),
        })
    }
}

impl EnrolmentClaims {
    fn encode(&self) -> Vec<u8> {
        let mut plain = self.expiry.to_be_bytes().to_vec();
        plain.extend(self.id.to_bytes());
        plain.extend(self.uuid);
        plain.extend(self.mac.0);
        plain.push(self.prefix_length);
        match self.address {
            IpAddr::V4(address) => plain.extend(address.octets()),
            IpAddr::V6(address) => plain.extend(address.octets()),
        }
        plain
    }

    fn decode(plain: &[u8]) -> Option<Self> {
        let (expiry, rest) = plain.split_first_chunk()?;
        let (id, rest) = rest.split_first_chunk()?;
        let (uuid, rest) = rest.split_first_chunk()?;
        let (mac, rest) = rest.split_first_chunk()?;
        let (prefix_length, rest) = rest.split_first()?;
        Some(Self {
            id: HardwareId::from_bytes(*id),
            uuid: *uuid,
            mac: Mac(*mac),
            address: address(rest)?,
            prefix_length: *prefix_length,
            expiry: u64::from_be_bytes(*expiry),
        })
    }
}

impl PlatformFileClaims {
    fn encode(&self) -> Vec<u8> {
        let address = match self.address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let mut plain = self.expiry.to_be_bytes().to_vec();
        plain.extend(self.generation.to_be_bytes());
        plain.extend(self.hardware.to_bytes());
        plain.extend(address.octets());
        plain.extend(self.instance.as_bytes());
        plain
    }

    fn decode(plain: &[u8]) -> Option<Self> {
        let (expiry, rest) = plain.split_first_chunk()?;
        let (generation, rest) = rest.split_first_chunk()?;
        let (hardware, rest) = rest.split_first_chunk()?;
        let (address, instance) = rest.split_first_chunk::<16>()?;
        Some(Self {
            hardware: HardwareId::from_bytes(*hardware),
            instance: std::str::from_utf8(instance).ok()?.to_owned(),
            generation: i64::from_be_bytes(*generation),
            address: IpAddr::from(*address).to_canonical(),
            expiry: u64::from_be_bytes(*expiry),
        })
    }
}

/// Returns the address of these octets.
fn address(octets: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(octets).ok().map(IpAddr::from);
    let v6 = || <[u8; 16]>::try_from(octets).ok().map(IpAddr::from);
    v4().or_else(v6)
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::secret::SiteKey;

    fn tokens(site: u8) -> BootTokens {
        BootTokens::new(&SiteKey::new([site; 32])).unwrap()
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds)
    }

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn edge(serial: &str) -> EdgeName {
        EdgeName::new(serial.parse().unwrap(), at(1000))
    }

    /// The tokens of an edge of site 1.
    fn of_edge(serial: &str) -> BootTokens {
        let key = SiteKey::new([1; 32]).for_edge(&edge(serial)).unwrap();
        BootTokens::new(&key).unwrap()
    }

    #[test]
    fn a_token_of_an_edge_is_accepted_by_the_edge_and_by_processes_with_the_sites_key() {
        let (ours, revocations) = (of_edge("4a"), Revocations::default());
        let mint = |now| ours.mint(Purpose::Identity, HardwareId::new(), 0, ADDRESS, now).unwrap();
        let token = mint(at(0));
        let (old, new) = (SiteKey::new([1; 32]), SiteKey::new([2; 32]));
        let rotating = BootTokens::new(SiteKeys::new(new, vec![old])).unwrap();
        let site = tokens(1).accepting_edges(revocations.clone());
        let rotating = rotating.accepting_edges(revocations.clone());
        for accepting in [&ours, &site, &rotating] {
            assert!(accepting.open(Purpose::Identity, &token, at(1)).is_ok());
            let other = accepting.open(Purpose::Files, &token, at(1));
            assert_eq!(other, Err(InvalidToken::Foreign));
        }
        let unaware = tokens(1);
        let other_site = tokens(2).accepting_edges(revocations.clone());
        let other_edge = of_edge("4b").accepting_edges(revocations);
        for refusing in [unaware, other_site, other_edge] {
            let refused = refusing.open(Purpose::Identity, &token, at(1));
            assert_eq!(refused, Err(InvalidToken::Foreign));
        }
        let late = site.open(Purpose::Identity, &mint(at(990)), at(1000));
        assert_eq!(late, Err(InvalidToken::Expired), "its certificate has ended");
    }

    #[test]
    fn an_edge_makes_no_token_of_the_site_and_none_of_another_edge() {
        let token = of_edge("4a").mint(Purpose::Files, HardwareId::new(), 0, ADDRESS, at(0));
        let token = token.unwrap().split_once(SEPARATOR).unwrap().1.to_owned();
        let site = tokens(1).accepting_edges(Revocations::default());
        for forged in [token.clone(), format!("{}.{token}", edge("4b")), format!(".{token}")] {
            let refused = site.open(Purpose::Files, &forged, at(1));
            assert_eq!(refused, Err(InvalidToken::Foreign), "{forged}");
        }
        // An edge accepts no token of the site's own processes, because it does not have their key.
        let token = tokens(1).mint(Purpose::Files, HardwareId::new(), 0, ADDRESS, at(0)).unwrap();
        let refused = of_edge("4a").open(Purpose::Files, &token, at(1));
        assert_eq!(refused, Err(InvalidToken::Foreign));
    }

    #[test]
    fn a_token_of_a_revoked_edge_is_refused() {
        let revocations = Revocations::default();
        let site = tokens(1).accepting_edges(revocations.clone());
        let token = of_edge("4a").mint(Purpose::Identity, HardwareId::new(), 0, ADDRESS, at(0));
        let token = token.unwrap();
        assert!(site.open(Purpose::Identity, &token, at(1)).is_ok());
        let id = edge("4a").certificate().identity();
        let revocation = tinwright::identity::v1::Revocation { id, ..Default::default() };
        revocations.apply(crate::feed::FeedEvent::Put(revocation));
        let refused = site.open(Purpose::Identity, &token, at(1));
        assert_eq!(refused, Err(InvalidToken::Revoked));
    }

    #[test]
    fn a_token_names_its_machine_boot_epoch_and_address_until_it_expires() {
        let (tokens, hardware) = (tokens(1), HardwareId::new());
        let token = tokens.mint(Purpose::Identity, hardware, 7, ADDRESS, at(0)).unwrap();
        let opened = tokens.open(Purpose::Identity, &token, at(899)).unwrap();
        let Claims { boot_epoch, address, .. } = opened.claims;
        assert_eq!((opened.claims.hardware, boot_epoch, address), (hardware, 7, ADDRESS));
        assert_eq!(tokens.open(Purpose::Identity, &token, at(900)), Err(InvalidToken::Expired));
        let there = "2001:db8::7".parse().unwrap();
        let token = tokens.mint(Purpose::Files, hardware, 0, there, at(0)).unwrap();
        assert_eq!(tokens.open(Purpose::Files, &token, at(0)).unwrap().claims.address, there);
        assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')));
    }

    #[test]
    fn a_token_for_enrolment_names_who_asked_and_is_good_for_nothing_else() {
        let (id, mac) = (HardwareId::new(), Mac([2, 0, 0, 0, 0, 1]));
        for address in [ADDRESS, "2001:db8::7".parse().unwrap()] {
            let claims =
                EnrolmentClaims { id, uuid: [7; 16], mac, address, prefix_length: 24, expiry: 0 };
            let token = tokens(1).mint_for_enrolment(claims, at(0)).unwrap();
            let opened = tokens(1).open_for_enrolment(&token, at(899)).unwrap();
            let expiry = opened.claims.expiry;
            assert_eq!(opened.claims, EnrolmentClaims { expiry, ..claims });
            let late = tokens(1).open_for_enrolment(&token, at(900));
            assert_eq!(late, Err(InvalidToken::Expired));
            assert_eq!(tokens(2).open_for_enrolment(&token, at(1)), Err(InvalidToken::Foreign));
            for purpose in [Purpose::Identity, Purpose::Files] {
                assert_eq!(tokens(1).open(purpose, &token, at(1)), Err(InvalidToken::Foreign));
            }
        }
        let worker = tokens(1).mint(Purpose::Identity, id, 0, ADDRESS, at(0)).unwrap();
        assert_eq!(tokens(1).open_for_enrolment(&worker, at(1)), Err(InvalidToken::Foreign));
    }

    fn platform_claims(address: IpAddr) -> PlatformFileClaims {
        let (hardware, instance) = (HardwareId::from_bytes([7; 16]), "i-1".to_owned());
        PlatformFileClaims { hardware, instance, generation: 3, address, expiry: 0 }
    }

    #[test]
    fn a_token_of_private_files_is_valid_for_an_hour_and_for_nothing_else() {
        let claims = platform_claims(ADDRESS);
        let token = tokens(1).mint_for_platform_files(claims.clone(), at(0)).unwrap();
        let opened = tokens(1).open_for_platform_files(&token, at(3599)).unwrap();
        assert_eq!(opened, PlatformFileClaims { expiry: opened.expiry, ..claims });
        let late = tokens(1).open_for_platform_files(&token, at(3600));
        assert_eq!(late, Err(InvalidToken::Expired));
        let other_site = tokens(2).open_for_platform_files(&token, at(1));
        assert_eq!(other_site, Err(InvalidToken::Foreign));
        for purpose in [Purpose::Identity, Purpose::Files, Purpose::Enrol] {
            assert_eq!(tokens(1).open(purpose, &token, at(1)), Err(InvalidToken::Foreign));
        }
        for purpose in [Purpose::Identity, Purpose::Files] {
            let other = tokens(1).mint(purpose, HardwareId::new(), 0, ADDRESS, at(0)).unwrap();
            let refused = tokens(1).open_for_platform_files(&other, at(1));
            assert_eq!(refused, Err(InvalidToken::Foreign));
        }
    }

    #[test]
    fn an_edge_opens_its_own_tokens_of_private_files() {
        let edge = of_edge("4a");
        let token = edge.mint_for_platform_files(platform_claims(ADDRESS), at(0)).unwrap();
        assert!(edge.open_for_platform_files(&token, at(1)).is_ok());
        for other in [of_edge("4b"), tokens(1)] {
            let refused = other.open_for_platform_files(&token, at(1));
            assert_eq!(refused, Err(InvalidToken::Foreign));
        }
    }

    proptest::proptest! {
        #[test]
        fn a_token_of_private_files_holds_what_was_put_in(
            id: [u8; 16], instance in "[ -~]{0,64}", generation: i64, v4: [u8; 4], v6: [u8; 16], is_v6: bool,
        ) {
            let address = if is_v6 { IpAddr::from(v6) } else { IpAddr::from(v4) };
            let hardware = HardwareId::from_bytes(id);
            let address = address.to_canonical();
            let claims = PlatformFileClaims { hardware, instance, generation, address, expiry: 0 };
            let token = tokens(1).mint_for_platform_files(claims.clone(), at(0)).unwrap();
            let opened = tokens(1).open_for_platform_files(&token, at(1)).unwrap();
            let expiry = opened.expiry;
            proptest::prop_assert_eq!(opened, PlatformFileClaims { expiry, ..claims });
        }

        #[test]
        fn a_changed_token_of_private_files_is_foreign(position: proptest::sample::Index, bit in 0..6_u8, text in "[A-Za-z0-9_-]{0,200}") {
            let token = tokens(1).mint_for_platform_files(platform_claims(ADDRESS), at(0)).unwrap();
            let mut raw = URL_SAFE_NO_PAD.decode(&token).unwrap();
            let at_byte = position.index(raw.len());
            raw[at_byte] ^= 1 << bit;
            for forged in [URL_SAFE_NO_PAD.encode(raw), text] {
                let refused = tokens(1).open_for_platform_files(&forged, at(1));
                proptest::prop_assert_eq!(refused, Err(InvalidToken::Foreign));
            }
        }
    }

    #[test]
    fn a_token_of_another_purpose_or_site_or_with_a_changed_letter_is_invalid() {
        let token = tokens(1).mint(Purpose::Files, HardwareId::new(), 0, ADDRESS, at(0)).unwrap();
        assert_eq!(tokens(1).open(Purpose::Identity, &token, at(1)), Err(InvalidToken::Foreign));
        assert_eq!(tokens(2).open(Purpose::Files, &token, at(1)), Err(InvalidToken::Foreign));
        for n in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[n] = if changed[n] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(
                tokens(1).open(Purpose::Files, &changed, at(1)),
                Err(InvalidToken::Foreign),
                "{n}"
            );
        }
        assert_eq!(tokens(1).open(Purpose::Files, "", at(1)), Err(InvalidToken::Foreign));
    }

    #[test]
    fn no_two_tokens_are_alike() {
        let (tokens, hardware) = (tokens(1), HardwareId::new());
        let mint = || tokens.mint(Purpose::Files, hardware, 0, ADDRESS, at(0)).unwrap();
        assert_ne!(mint(), mint());
        let nonce = |token: String| tokens.open(Purpose::Files, &token, at(0)).unwrap().nonce;
        let many: HashSet<_> = (0..200).map(|_| nonce(mint())).collect();
        assert_eq!(many.len(), 200);
    }
}
