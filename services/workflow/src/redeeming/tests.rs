//! BootTokens turned into certificates.

use runtime::SiteKey;
use store::memory::MemoryStore;

use super::*;

/// Issues what can be read by people.
struct Clerk;

impl Issuer for Clerk {
    fn issue(&self, role: Role, _: &[u8]) -> Result<Issued, NotIssued> {
        Ok(Issued { certificate: role.to_string(), expires: SystemTime::UNIX_EPOCH })
    }
}

const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

fn tokens() -> BootTokens {
    BootTokens::new(&SiteKey::new([1; 32])).unwrap()
}

fn redeeming() -> Redeeming {
    let store = ScopedStore::new(Arc::new(MemoryStore::default()), "workflow");
    Redeeming::new(store, Arc::new(tokens()), Arc::new(Clerk))
}

fn token(machine: HardwareId) -> String {
    tokens().mint(Purpose::Identity, machine, HERE, SystemTime::now()).unwrap()
}

/// A request for a key of its own.
pub(crate) fn csr() -> Vec<u8> {
    let key = rcgen::KeyPair::generate().unwrap();
    rcgen::CertificateParams::default().serialize_request(&key).unwrap().der().to_vec()
}

#[tokio::test]
async fn the_same_key_may_ask_again_and_another_is_refused() {
    let (redeeming, machine) = (redeeming(), HardwareId::new());
    let (csr_one, csr_two) = (csr(), csr());
    let token = token(machine);
    let redeem = |csr| {
        let (redeeming, token) = (&redeeming, &token);
        async move { redeeming.redeem(token, csr, Some(HERE), SystemTime::now()).await }
    };
    let (whose, issued) = redeem(&csr_one).await.unwrap();
    assert_eq!((whose, issued.certificate), (machine, format!("tinwright:machine:{machine}")));
    assert!(redeem(&csr_one).await.is_ok(), "its answer may have been lost");
    assert!(matches!(redeem(&csr_two).await, Err(Error::Spent)));
    assert!(redeem(&csr_one).await.is_ok(), "the first is not disturbed");
}

#[tokio::test]
async fn a_token_is_good_only_at_its_address_in_its_time_and_with_a_request() {
    let (redeeming, token, csr, now) =
        (redeeming(), token(HardwareId::new()), csr(), SystemTime::now());
    let elsewhere = redeeming.redeem(&token, &csr, Some([192, 0, 2, 8].into()), now).await;
    assert!(matches!(elsewhere, Err(Error::Elsewhere(_))));
    let late =
        redeeming.redeem(&token, &csr, Some(HERE), now + runtime::boot_token::LIFETIME).await;
    assert!(matches!(late, Err(Error::InvalidToken(InvalidToken::Expired))));
    let none = redeeming.redeem(&token, b"x", Some(HERE), now).await;
    assert!(matches!(none, Err(Error::NotIssued(NotIssued::Request))));
    let mapped = Some("::ffff:192.0.2.7".parse().unwrap());
    assert!(redeeming.redeem(&token, &csr, mapped, now).await.is_ok());
}

#[tokio::test]
async fn a_spent_token_is_forgotten_when_it_could_not_be_used_any_more() {
    let (redeeming, now) = (redeeming(), SystemTime::now());
    redeeming.redeem(&token(HardwareId::new()), &csr(), None, now).await.unwrap();
    assert_eq!(redeeming.forget(now).await.unwrap(), 0);
    assert_eq!(redeeming.forget(now + 2 * REMEMBERED).await.unwrap(), 1);
}
