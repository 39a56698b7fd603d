//! Boot tokens are redeemed for certificates.

use runtime::SiteKey;
use store::memory::MemoryStore;

use super::*;

/// Issues the URI of the caller.
struct NameIssuer;

impl Issuer for NameIssuer {
    fn issue(&self, caller: &Caller, _: &[u8]) -> Result<IssuedCertificate, IssueError> {
        Ok(IssuedCertificate { certificate: caller.to_string(), expires: SystemTime::UNIX_EPOCH })
    }
}

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

fn tokens() -> BootTokens {
    BootTokens::new(&SiteKey::new([1; 32])).unwrap()
}

fn enrollment() -> WorkerEnrollment {
    let store = ScopedStore::new(Arc::new(MemoryStore::default()), "workflow");
    WorkerEnrollment::new(store, Arc::new(tokens()), Arc::new(NameIssuer))
}

fn token(machine: HardwareId) -> String {
    tokens().mint(Purpose::Identity, machine, 0, HERE, SystemTime::now()).unwrap()
}

/// A certificate request for a new key.
pub(crate) fn csr() -> Vec<u8> {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::default().serialize_request(&key).unwrap().der().to_vec()
}

impl WorkerEnrollment {
    /// Verifies and redeems a token that `boot` sends from `from`.
    async fn redeem_from(
        &self,
        token: &str,
        csr: &[u8],
        (boot, from): (&str, Option<IpAddr>),
        now: SystemTime,
    ) -> Result<(HardwareId, IssuedCertificate), Error> {
        self.redeem(&self.verify(token, csr, from, now)?, csr, &boot.into()).await
    }
}

#[tokio::test]
async fn a_token_may_be_redeemed_again_with_the_same_key_and_not_with_another() {
    let (enrollment, machine) = (enrollment(), HardwareId::new());
    let (csr_one, csr_two) = (csr(), csr());
    let token = token(machine);
    let redeem = |csr| {
        let (enrollment, token) = (&enrollment, &token);
        async move { enrollment.redeem_from(token, csr, ("b1", Some(HERE)), SystemTime::now()).await }
    };
    let (owner, issued) = redeem(&csr_one).await.unwrap();
    assert_eq!((owner, issued.certificate), (machine, format!("tinwright:machine:{machine}")));
    assert!(redeem(&csr_one).await.is_ok(), "its response may have been lost");
    assert!(matches!(redeem(&csr_two).await, Err(Error::Spent)));
    assert!(redeem(&csr_one).await.is_ok(), "the first key is still accepted");
}

#[tokio::test]
async fn a_token_may_be_redeemed_again_by_the_same_boot_and_not_by_another() {
    let (enrollment, token, csr) = (enrollment(), token(HardwareId::new()), csr());
    let redeem = |boot| {
        let (enrollment, token, csr) = (&enrollment, &token, &csr);
        async move { enrollment.redeem_from(token, csr, (boot, Some(HERE)), SystemTime::now()).await }
    };
    assert!(redeem("b1").await.is_ok());
    assert!(redeem("b1").await.is_ok());
    for other in ["b2", ""] {
        assert!(matches!(redeem(other).await, Err(Error::OtherBoot)), "{other}");
    }
    assert!(redeem("b1").await.is_ok(), "the first boot is still accepted");
}

#[tokio::test]
async fn a_token_is_valid_only_at_its_address_before_its_expiry_and_with_a_request() {
    let (enrollment, token, csr, now) =
        (enrollment(), token(HardwareId::new()), csr(), SystemTime::now());
    let redeem = |csr, from, now| {
        let (enrollment, token) = (&enrollment, &token);
        async move { enrollment.redeem_from(token, csr, ("b1", from), now).await }
    };
    let elsewhere = redeem(&csr, Some([192, 0, 2, 8].into()), now).await;
    assert!(matches!(elsewhere, Err(Error::WrongAddress(_))));
    let late = redeem(&csr, Some(HERE), now + runtime::boot_token::LIFETIME).await;
    assert!(matches!(late, Err(Error::InvalidToken(InvalidToken::Expired))));
    let malformed = b"x".to_vec();
    let none = redeem(&malformed, Some(HERE), now).await;
    assert!(matches!(none, Err(Error::NotIssued(IssueError::Request))));
    let mapped = Some("::ffff:192.0.2.7".parse().unwrap());
    assert!(redeem(&csr, mapped, now).await.is_ok());
}

#[tokio::test]
async fn a_spent_token_is_deleted_after_its_expiry() {
    let (enrollment, now) = (enrollment(), SystemTime::now());
    let token = token(HardwareId::new());
    enrollment.redeem_from(&token, &csr(), ("b1", None), now).await.unwrap();
    assert_eq!(enrollment.delete_expired(now).await.unwrap(), 0);
    assert_eq!(enrollment.delete_expired(now + 2 * SPENT_TOKEN_MARGIN).await.unwrap(), 1);
}
